#!/usr/bin/env bash
# Five sites with a table each look for wrong labels together, each process with its own file only. Over TLS: how long that takes, how
# many rows a second, how much memory each process has at most beside the size of its file, and whether models and lists have the bits
# of one process that has all five files. Then with few rows over plain TCP under strace, where what is sent can be read: which tables
# each process opens, and whether a row's name leaves it.
#
#   scripts/five-sites.sh DIBO [ROWS] [COLUMNS]      DIBO is built with --features net; 200,000 rows of 50 columns by default
set -euo pipefail
dibo=$(realpath "${1:?path of a dibo built with --features net}") rows=${2:-200000} columns=${3:-50}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

tables() { # tables FOLDER ROWS: a table for each site, and the experiment
    mkdir -p "$1/all"
    for site in 0 1 2 3 4; do
        mkdir "$1/$site"
        awk -v site=$site -v rows="$2" -v columns="$columns" 'BEGIN {
            srand(site + 1)
            printf "id"; for (c = 0; c < columns; c++) printf ",n%d", c; print ",label,checked"
            for (row = 0; row < rows; row++) {
                class = int(3 * rand()); given = class
                if (row >= 200 && rand() < 0.3) given = (class + 1 + int(2 * rand())) % 3
                printf "patient-%d-%d", site, row
                for (c = 0; c < columns; c++) printf ",%.3f", (c % 3 == class) + 2 * (rand() + rand() + rand() - 1.5)
                printf ",c%d,%d\n", given, row < 200
            }
        }' >"$1/$site/site$site.csv"
        ln "$1/$site/site$site.csv" "$1/all"
    done
    (cd "$1/all" && "$dibo" clean site{0,1,2,3,4}.csv --label label --id id --clean checked --ways em --model linear \
        --iterations 800 --write clean.toml >/dev/null)
    for site in 0 1 2 3 4; do cp "$1/all/clean.toml" "$1/$site"; done
}

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

together() { # together FOLDER PROTOCOL COMMAND…: five processes, each started by COMMAND in its own folder
    local folder=$1 protocol=$2 agents=() listen=() site
    shift 2
    for site in 0 1 2 3 4; do
        listen+=("$protocol/localhost:$(free)")
        (
            cd "$folder/$site"
            own=(--own $site --local "site$site.csv" --listen "${listen[$site]}")
            [ $site = 0 ] || own+=(--connect "$(IFS=,; echo "${listen[*]:0:$site}")")
            [ "$protocol" = tcp ] || own+=(--certificates ../keys --host "site$site")
            exec "$@" "$dibo" agent clean.toml "${own[@]}" >said 2>&1
        ) &
        agents+=($!)
    done
    for agent in "${agents[@]}"; do wait "$agent" || { cat "$folder"/?/said; exit 1; }; done
}

tables "$work/large" "$rows"
size=$(stat -c %s "$work/large/0/site0.csv")
echo "five tables of $rows rows and $columns numbers, $((size / 1000000)) MB each"
(cd "$work/large" && "$dibo" certificates keys --agents site0=0,site1=1,site2=2,site3=3,site4=4 >/dev/null)
began=$(date +%s.%N)
together "$work/large" tls /usr/bin/time -f %M -o memory
date +%s.%N | awk -v began="$began" -v rows="$rows" \
    '{ took = $1 - began; printf "five processes over TLS: %.1f s from start to end, %.0f rows a second\n", took, 5 * rows / took }'
cat "$work"/large/?/memory | awk -v size="$size" \
    '{ if ($1 > most) most = $1 } END { printf "peak memory of a process: %.0f MB at most, %.2f times its file\n", most / 1000, 1024 * most / size }'

# The same in one process: every number of every evaluation, and every line of the lists.
mkdir -p "$work/large/all/results/clean/agents"
for site in 0 1 2 3 4; do cp -r "$work/large/$site/results/clean/agents/$site" "$work/large/all/results/clean/agents"; done
(cd "$work/large/all" && "$dibo" gather clean.toml --verify 2>&1 | grep "bit")
(cd "$work/large/all" && "$dibo" run clean.toml --quiet --out alone >/dev/null)
apart=$(tail -qn +2 "$work"/large/?/results/clean/agents/?/taken/0-0/labels.csv | sort | sha256sum)
[ "$apart" = "$(tail -n +2 "$work/large/all/alone/taken/0/labels.csv" | sort | sha256sum)" ] && echo "the five lists are that of one process, line for line"

command -v strace >/dev/null || { echo "strace is not here: what is opened and sent was not looked at"; exit 0; }
tables "$work/small" 1000
together "$work/small" tcp strace -qq -f -o calls -s 1000000 -e trace=openat,open,sendto,sendmsg,write,writev
for site in 0 1 2 3 4; do
    opened=$(grep -o 'open[^"]*"[^"]*\.csv"' "$work/small/$site/calls" | grep -o '[^/"]*\.csv' | grep '^site' | sort -u | tr '\n' ' ')
    sent=$(grep -E 'sendto\(|sendmsg\(' "$work/small/$site/calls" | grep -c "patient-" || true)
    all=$(grep -cE 'sendto\(|sendmsg\(' "$work/small/$site/calls")
    kept=$(grep -E ' writev?\(' "$work/small/$site/calls" | grep -c "patient-" || true)
    echo "process $site opened $opened; of $all messages sent, $sent have a row's name (of what it wrote to its own disk, $kept)"
done
