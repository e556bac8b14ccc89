# The command with the network, for machines that run containers: docker run --rm -v "$PWD":/work dibo dibo run policy
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /dibo
COPY . .
RUN cargo build --release --locked -p dibo-cli --features net,parquet

FROM debian:bookworm-slim
COPY --from=build /dibo/target/release/dibo /usr/local/bin/dibo
RUN useradd --create-home dibo && mkdir /work && chown dibo /work
USER dibo
WORKDIR /work
CMD ["dibo", "--help"]
