#!/bin/sh
# How long `dibo clean` takes for 10,000 rows: five tables of 2,000 rows with 20 numbers and 3 classes, 30 % of
# the labels wrong, 20 checked rows a site, all ways that it tries by itself. Prints seconds from start to end,
# CPU seconds and the share of the rows whose label is right afterwards, for each of the times that are asked for.
#
#   scripts/clean-speed.sh [TIMES] [DIBO]
set -eu
times=${1:-5} dibo=${2:-dibo}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for site in 0 1 2 3 4; do
    awk -v site="$site" 'BEGIN {
        srand(site + 1)
        printf "id"; for (c = 0; c < 20; c++) printf ",n%d", c; print ",label,checked,truth"
        for (row = 0; row < 2000; row++) {
            class = int(3 * rand()); given = class
            if (row >= 20 && rand() < 0.3) given = (class + 1 + int(2 * rand())) % 3
            printf "%d-%d", site, row
            for (c = 0; c < 20; c++) printf ",%.3f", (c % 3 == class) + 2 * (rand() + rand() + rand() - 1.5)
            printf ",c%d,%d,c%d\n", given, row < 20, class
        }
    }' > "$folder/site$site.csv"
done
cd "$folder"
for time in $(seq "$times"); do
    began=$(date +%s.%N)
    before=$(awk '{ print $16 + $17 }' /proc/$$/stat)
    "$dibo" clean site0.csv site1.csv site2.csv site3.csv site4.csv --label label --id id --clean checked \
        --truth truth --quiet --fresh > said
    after=$(awk '{ print $16 + $17 }' /proc/$$/stat)
    right=$(awk -F, 'FNR > 1 { n++; if ($22 == $24) right++ } END { printf "%.1f", 100 * right / n }' \
        cleaned/cleaned_site*.csv)
    date +%s.%N | awk -v began="$began" -v before="$before" -v after="$after" -v right="$right" \
        '{ printf "%.1f s, %.1f s of CPU, %s %% of the labels right\n", $1 - began, (after - before) / 100, right }'
done
