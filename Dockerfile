# docker build --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse HEAD) .
FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY configs configs
COPY internal internal
COPY pkg pkg
ARG VERSION=dev
ARG COMMIT=
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /kubecdc ./cmd/agent

# A static binary and the certificates of public authorities: no shell, nothing to update, no user but nobody.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /kubecdc /kubecdc
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/kubecdc"]
CMD ["run", "--config", "/etc/kubecdc/kubecdc.yaml"]
