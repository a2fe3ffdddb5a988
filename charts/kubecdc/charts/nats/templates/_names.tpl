{{/* The chart above has the name in bus.nats.url. */}}
{{- define "nats.fullname" -}}
{{- $name := regexMatch "^[0-9]" .Release.Name | ternary (printf "nats-%s" .Release.Name) (printf "%s-nats" .Release.Name) -}}
{{- $name | replace "." "-" | trunc 60 | trimSuffix "-" -}}
{{- end -}}
