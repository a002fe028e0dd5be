# The image: one static program, without a shell or a system around it.
#
#   docker build .
#   docker buildx build --platform linux/amd64,linux/arm64 .
#   docker build --target tools .    the same with mkfs.ext4 and mkfs.xfs (docs/image.md)
#
# Nothing here needs BuildKit. Builders that do not say which platform they run on (Docker without BuildKit, buildah
# 1.28) get the compiler for amd64. BUILDPLATFORM must not be declared here: an ARG would hide BuildKit's own.

FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/rust:1.95-bookworm AS build
WORKDIR /build

# The compiler always runs on the machine's own architecture. It builds for the other with that one's linker and
# standard library; for its own it needs nothing more. A target that is named keeps the flags of the static program
# from the compiler's own plugins, which cannot be static.
ARG TARGETARCH
RUN set -eu; \
    case "${TARGETARCH:-$(uname -m)}" in \
      amd64 | x86_64) cpu=x86_64 ;; \
      arm64 | aarch64) cpu=aarch64 ;; \
      *) echo "there is no build for $TARGETARCH, only for amd64 and arm64" >&2; exit 1 ;; \
    esac; \
    mkdir .cargo; \
    printf '[build]\ntarget = "%s-unknown-linux-gnu"\nrustflags = ["-C", "target-feature=+crt-static"]\n' "$cpu" \
      > .cargo/config.toml; \
    if [ "$cpu" != "$(uname -m)" ]; then \
      rustup target add "$cpu-unknown-linux-gnu"; \
      package=$(echo "$cpu" | tr _ -); \
      arch=$(echo "$cpu" | sed 's/x86_64/amd64/; s/aarch64/arm64/'); \
      apt-get update; \
      apt-get install --yes --no-install-recommends "gcc-$package-linux-gnu" "libc6-dev-$arch-cross"; \
      rm -rf /var/lib/apt/lists/*; \
      printf '[target.%s-unknown-linux-gnu]\nlinker = "%s-linux-gnu-gcc"\n' "$cpu" "$cpu" >> .cargo/config.toml; \
    fi

# The libraries in a layer of their own, built around empty packages: it is built again only when a manifest changes.
# Of tests/, .dockerignore lets only the manifests through, which the workspace is not complete without.
# The tests' image leaves out link-time optimisation, which takes minutes.
ARG PROFILE=release
COPY Cargo.toml Cargo.lock ./
COPY tests tests
RUN mkdir -p benches/cleaning benches/figures && touch benches/cleaning/main.rs benches/figures/main.rs \
    && for manifest in Cargo.toml tests/*/Cargo.toml; do \
         package=$(dirname "$manifest") && mkdir -p "$package/src" && echo '//! Empty.' > "$package/src/lib.rs" || exit; \
       done \
    && cargo build --profile "$PROFILE" --locked

# The program. Its files may be older than the empty ones were, and than those of another commit, and cargo goes by the time.
COPY build.rs ./
COPY src src
ARG REVISION=
RUN touch build.rs src/lib.rs src/main.rs && LVP_REVISION="${REVISION:-unknown}" cargo build --profile "$PROFILE" --locked \
    && mkdir -p /image/etc/ssl/certs \
    && cp target/*-unknown-linux-gnu/"$PROFILE"/local-volume-provisioner /image/ \
# For an API server whose certificate a public authority signed; a pod is given the cluster's own authority.
    && cp -L /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/

FROM scratch AS image
COPY --from=build /image/ /
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="local-volume-provisioner" \
      org.opencontainers.image.description="Node-local PersistentVolumes for Kubernetes: finds disks, offers them, and cleans them when they are released" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# The files of a released volume can belong to any user, and only root can delete them.
USER 0:0
EXPOSE 8080
ENTRYPOINT ["/local-volume-provisioner"]

# The programs that make filesystems, with the libraries and the loader that they name. The packages are those of the
# target's architecture; they are only unpacked, and none of their programs runs here.
FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/rust:1.95-bookworm AS unpack
WORKDIR /unpack
ARG TARGETARCH
RUN set -eu; \
    arch=${TARGETARCH:-$(dpkg --print-architecture)}; \
    dpkg --add-architecture "$arch"; \
    apt-get update; \
    for package in e2fsprogs xfsprogs libblkid1 libc6 libcom-err2 libext2fs2 libinih1 liburcu8 libuuid1; do \
      apt-get --quiet=2 --option APT::Sandbox::User=root download "$package:$arch"; \
    done; \
    for package in *.deb; do dpkg-deb --extract "$package" root; done; \
    mkdir -p /tools/sbin /tools/lib; \
    cp -L root/sbin/mkfs.ext4 root/sbin/mkfs.xfs /tools/sbin/; \
    loader=$(readelf --program-headers root/sbin/mkfs.xfs | sed -n 's/.*interpreter: \(.*\)]$/\1/p'); \
    mkdir -p "/tools${loader%/*}"; \
    cp "$(find root -type f -name "${loader##*/}")" "/tools$loader"; \
    set -- /tools/sbin/*; \
    while [ $# -gt 0 ]; do \
      for library in $(readelf --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do \
        [ "$library" != "${loader##*/}" ] && [ ! -e "/tools/lib/$library" ] || continue; \
        cp -L "$(find root -name "$library")" /tools/lib/; \
        set -- "$@" "/tools/lib/$library"; \
      done; \
      shift; \
    done

FROM image AS tools
COPY --from=unpack /tools/ /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The default. Docker without BuildKit and buildah 1.28 build every stage before it; with `--target image` they build no
# stage of the tools.
FROM image
