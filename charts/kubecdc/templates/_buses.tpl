{{/*
The part of the chart for each bus, and for the other target of relays. No other template names a bus, except for
the NATS server of the chart. A bus NAME defines these templates. They get its settings (.of) and their key (.at).

- kubecdc.NAME.addresses: a JSON list of the URLs that it connects to.
- kubecdc.NAME.place: where the records go, for people.
- kubecdc.NAME.missing: the error of settings without an address. "": there is one.
- kubecdc.NAME.secrecy: fails if a secret would be sent in plain text. kubecdc config check has the same rules.
- kubecdc.NAME.kind: "keeps" if commands can read it, "receives" if its receiver gets requests.
- kubecdc.NAME.reader: what a user needs to read it, for people.
*/}}

{{/* The name of the bus of settings, {NAME: …}. "": there is none, or there are several. */}}
{{- define "kubecdc.busName" -}}
{{- $names := list -}}
{{- range list "nats" "kafka" "http" "stdout" "slack" -}}{{- if hasKey $ . -}}{{- $names = append $names . -}}{{- end -}}{{- end -}}
{{- if eq (len $names) 1 -}}{{ first $names }}{{- end -}}
{{- end -}}

{{/* The template KEY of the bus of settings: {key, bus, at}. */}}
{{- define "kubecdc.ofBus" -}}
{{- $name := include "kubecdc.busName" .bus -}}
{{- if $name -}}
{{- include (printf "kubecdc.%s.%s" $name .key) (dict "of" (get .bus $name | default dict) "at" (printf "%s.%s" .at $name)) -}}
{{- end -}}
{{- end -}}

{{/* Settings for a first installation. */}}
{{- define "kubecdc.busExamples" }}  --set bus.nats.url=nats://nats.messaging:4222
  --set bus.kafka.brokers={kafka-0.kafka:9092}
  --set bus.http.url=https://events.example.com/kubecdc
{{- end -}}

{{/* The default ports of the schemes of addresses. */}}
{{- define "kubecdc.schemes" -}}
{nats: "4222", tls: "4222", ws: "80", wss: "443", kafka: "9092", http: "80", https: "443"}
{{- end -}}

{{- define "kubecdc.nats.addresses" -}}
{{- $all := list -}}
{{- range splitList "," (.of.url | default "nats://127.0.0.1:4222") -}}{{- $all = append $all (trim .) -}}{{- end -}}
{{- toJson $all -}}
{{- end -}}
{{- define "kubecdc.nats.place" -}}
{{- $places := list -}}
{{- range include "kubecdc.nats.addresses" . | fromJsonArray -}}{{- $places = append $places (include "kubecdc.place" .) -}}{{- end -}}
NATS JetStream at {{ join ", " $places }}
{{- end -}}
{{- define "kubecdc.nats.missing" -}}{{- end -}}
{{- define "kubecdc.nats.kind" -}}keeps{{- end -}}
{{- define "kubecdc.nats.reader" -}}{{- end -}}
{{- define "kubecdc.nats.secrecy" -}}
{{- $at := .at -}}
{{- $auth := .of.auth | default dict -}}
{{- if and (or $auth.passwordFile $auth.tokenFile) (not (eq (toString $auth.insecure) "true")) (not (kindIs "map" .of.tls)) (not (regexMatch "(^|,) *(tls|wss)://" (.of.url | default "" | toString))) -}}
{{- range splitList "," (.of.url | default "nats://127.0.0.1:4222" | toString) -}}
{{- if trim . | include "kubecdc.remote" -}}
{{- fail (printf "%s.auth.%s: would be sent unencrypted: require TLS with %s.tls: {}, or with tls:// or wss:// in url; or permit it with %s.auth.insecure: true" $at (empty $auth.passwordFile | ternary "tokenFile" "passwordFile") $at $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubecdc.kafka.addresses" -}}
{{- $all := list -}}
{{- range .of.brokers -}}{{- $all = append $all (printf "kafka://%s" .) -}}{{- end -}}
{{- with ((.of.sasl).oauth).tokenURL -}}{{- $all = append $all . -}}{{- end -}}
{{- toJson $all -}}
{{- end -}}
{{- define "kubecdc.kafka.place" -}}
Kafka at {{ join ", " .of.brokers }}
{{- end -}}
{{- define "kubecdc.kafka.missing" -}}
{{- if not .of.brokers -}}{{ .at }}.brokers: is missing; for example --set '{{ .at }}.brokers={kafka-0.kafka:9092}'{{- end -}}
{{- end -}}
{{- define "kubecdc.kafka.kind" -}}keeps{{- end -}}
{{- define "kubecdc.kafka.reader" -}}
{{- if .of.sasl -}}The Kafka user needs Read on the topics for the last one.{{- end -}}
{{- end -}}
{{- define "kubecdc.kafka.secrecy" -}}
{{- $at := .at -}}
{{- $sasl := .of.sasl | default dict -}}
{{- if and (has $sasl.mechanism (list "PLAIN" "OAUTHBEARER")) (not (eq (toString $sasl.insecure) "true")) (not (kindIs "map" .of.tls)) -}}
{{- range .of.brokers -}}
{{- if toString . | include "kubecdc.remote" -}}
{{- fail (printf "%s.sasl: the password or token would be sent unencrypted: require TLS with %s.tls: {}, or use a SCRAM mechanism; or permit it with %s.sasl.insecure: true" $at $at $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $sasl.oauth -}}
{{- if and (not (eq (toString .insecure) "true")) (toString .tokenURL | include "kubecdc.remote") -}}
{{- fail (printf "%s.sasl.oauth.clientSecretFile: would be sent unencrypted: use https:// in tokenURL; or permit it with insecure: true beside it" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubecdc.http.addresses" -}}{{- list .of.url | toJson -}}{{- end -}}
{{- define "kubecdc.http.place" -}}{{- include "kubecdc.place" .of.url -}}{{- end -}}
{{- define "kubecdc.http.missing" -}}
{{- if not .of.url -}}{{ .at }}.url: is missing; for example --set {{ .at }}.url=https://events.example.com/kubecdc{{- end -}}
{{- end -}}
{{- define "kubecdc.http.kind" -}}receives{{- end -}}
{{- define "kubecdc.http.reader" -}}{{- end -}}
{{- define "kubecdc.http.secrecy" -}}
{{- include "kubecdc.httpSecrecy" (dict "at" .at "key" "url" "of" .of) -}}
{{- end -}}

{{- define "kubecdc.stdout.addresses" -}}[]{{- end -}}
{{- define "kubecdc.stdout.place" -}}its standard output{{- end -}}
{{- define "kubecdc.stdout.missing" -}}{{- end -}}
{{- define "kubecdc.stdout.kind" -}}{{- end -}}
{{- define "kubecdc.stdout.reader" -}}{{- end -}}
{{- define "kubecdc.stdout.secrecy" -}}{{- end -}}

{{- define "kubecdc.slack.addresses" -}}["https://slack.com"]{{- end -}}
{{- define "kubecdc.slack.secrecy" -}}{{- end -}}
