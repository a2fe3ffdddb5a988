# What `make image` builds with buildah, for those who have Docker:
#
#   docker build --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse HEAD) .
#
# The root file system is made by the same program (image/rootfs) from the same sources: a static binary, the certificates of
# public authorities, names for two users. No shell, nothing to update. Releases are built by `make image`, which has no base image.
FROM --platform=$BUILDPLATFORM golang:1.26.11-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY image/go.mod image/go.sum image/
RUN cd image && go mod download
COPY image image
RUN cd image && CGO_ENABLED=0 go build -trimpath -o /rootfs-tool ./rootfs
COPY LICENSE ./
COPY cmd cmd
COPY configs configs
COPY internal internal
COPY pkg pkg
ARG VERSION=dev
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /kubecdc ./cmd/agent && \
    /rootfs-tool /kubecdc LICENSE /rootfs

FROM scratch
ARG VERSION=dev
ARG COMMIT=unknown
COPY --from=build --chown=0:0 /rootfs /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
LABEL org.opencontainers.image.title="kubecdc"
LABEL org.opencontainers.image.description="Change data capture for Kubernetes"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.source="https://github.com/kubecdc/kubecdc"
LABEL org.opencontainers.image.documentation="https://github.com/kubecdc/kubecdc/tree/main/docs"
LABEL org.opencontainers.image.version="$VERSION"
LABEL org.opencontainers.image.revision="$COMMIT"
USER 65532:65532
EXPOSE 8080/tcp
ENTRYPOINT ["/kubecdc"]
CMD ["run", "--config", "/etc/kubecdc/kubecdc.yaml"]
