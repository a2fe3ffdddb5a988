{{/* Names. Objects have a suffix of at most 13 letters, and 63 are the most that a Service, a label or a host takes. */}}
{{- define "kubecdc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubecdc.fullname" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains $chart .Release.Name) -}}
{{- $name = printf "%s-%s" .Release.Name $chart -}}
{{- end -}}
{{- /* A release may have dots in its name and begin with a digit; a Service may not. */ -}}
{{- if regexMatch "^[0-9]" $name -}}{{- $name = printf "kubecdc-%s" $name -}}{{- end -}}
{{- $name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of roles and bindings: they may be in namespaces of others, or in none. ":" is in no name of a release. */}}
{{- define "kubecdc.rolename" -}}
{{- printf "%s:%s%s" .root.Release.Namespace (include "kubecdc.fullname" .root) (eq .component "node" | ternary ":node" "") -}}
{{- end -}}

{{- define "kubecdc.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kubecdc.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kubecdc.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Chart.AppVersion | trunc 63)
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "kubecdc" -}}
{{- merge (include "kubecdc.selectorLabels" . | fromYaml) $own (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- define "kubecdc.serviceAccount" -}}
{{- $sa := .root.Values.serviceAccount -}}
{{- $name := default (ternary (include "kubecdc.fullname" .root) "default" $sa.create) $sa.name -}}
{{- if eq .component "node" -}}
{{- $name = default (ternary (printf "%s-node" $name) $name $sa.create) $sa.node -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Reports whether agents on nodes store their checkpoints in ConfigMaps: "1" or nothing. */}}
{{- define "kubecdc.nodeConfigMaps" -}}
{{- if and (has .Values.mode (list "node" "both")) (eq .Values.node.checkpoint "configMap") -}}1{{- end -}}
{{- end -}}

{{/* The namespace of these ConfigMaps. */}}
{{- define "kubecdc.checkpointNamespace" -}}
{{- default (printf "%s-%s-checkpoints" .Release.Namespace (include "kubecdc.fullname" .)) .Values.node.checkpointNamespace -}}
{{- end -}}

{{/*
Reports whether an admission policy can limit an agent to the checkpoint of its node: "1" or nothing. Kubernetes before 1.30 has no policies,
and no nodes in tokens.
*/}}
{{- define "kubecdc.nodePolicy" -}}
{{- if and (include "kubecdc.nodeConfigMaps" .) (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}1{{- end -}}
{{- end -}}

{{- define "kubecdc.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest -}}
{{- printf "%s@%s" $i.repository $i.digest -}}
{{- else -}}
{{- printf "%s:%s" $i.repository (default .Chart.AppVersion $i.tag | toString) -}}
{{- end -}}
{{- end -}}

{{/* 90 % of a quantity of memory, in bytes; nothing where it is written in another way than everybody does. */}}
{{- define "kubecdc.gomemlimit" -}}
{{- $q := toString . -}}
{{- if kindIs "float64" . -}}{{- $q = printf "%.0f" . -}}{{- end -}}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $q -}}
{{- $unit := regexFind "[A-Za-z]+$" $q -}}
{{- $factor := get (dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000) $unit -}}
{{- mulf (trimSuffix $unit $q | float64) $factor 0.9 | floor | int64 -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a size in the configuration, {size, default}; nothing if it is written in another way. */}}
{{- define "kubecdc.bytes" -}}
{{- $size := .size | default .default -}}
{{- $size = kindIs "float64" $size | ternary (printf "%.0f" (toString $size | float64)) (toString $size) -}}
{{- if regexMatch "^[0-9]+([KMGT]iB)?$" $size -}}
{{- $unit := regexFind "[A-Za-z]+$" $size -}}
{{- $factor := get (dict "" 1 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 "TiB" 1099511627776) $unit -}}
{{- mulf (trimSuffix $unit $size | float64) $factor | int64 -}}
{{- end -}}
{{- end -}}

{{/*
The smallest memory limit of an agent in Mi: 90 % are enough for the process, a full queue and the events in flight. Nothing if
{root, resources} has a higher limit, no limit, or one that cannot be read.
*/}}
{{- define "kubecdc.memoryWanted" -}}
{{- $queue := (.root.Values.config).queue | default dict -}}
{{- $waiting := include "kubecdc.bytes" (dict "size" $queue.bytes "default" "64MiB") -}}
{{- $flying := include "kubecdc.bytes" (dict "size" $queue.inFlightBytes "default" "32MiB") -}}
{{- $limit := include "kubecdc.gomemlimit" (((.resources).limits).memory | default "") -}}
{{- if and $limit $waiting $flying -}}
{{- $wanted := addf (float64 $waiting) (float64 $flying) (mulf 50 1048576) -}}
{{- if lt (float64 $limit) $wanted -}}{{- divf $wanted 0.9 1048576 | ceil | int64 -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of the agents' HTTP server. */}}
{{- define "kubecdc.port" -}}
{{- $address := ((.Values.config).server).address | default ":8080" | toString -}}
{{- regexFind "[0-9]+$" $address -}}
{{- end -}}

{{/*
Reports whether agents elect a leader, as they do unless leaderElection.enabled is false: "1" or nothing. Here and below a key is looked up
as (.a).b and not by dig, which fails if a is null: a mapping whose keys are all commented out.
*/}}
{{- define "kubecdc.election" -}}
{{- if ne (((.Values.config).leaderElection).enabled | toString) "false" -}}1{{- end -}}
{{- end -}}

{{/* Components that there are: agent (the Deployment) and node (the DaemonSet). A central agent without pods has nothing to do. */}}
{{- define "kubecdc.components" -}}
{{- $all := list -}}
{{- if has .Values.mode (list "node" "both") -}}{{- $all = append $all "node" -}}{{- end -}}
{{- if include "kubecdc.watch" (dict "root" . "component" "agent") | fromYamlArray -}}{{- $all = append $all "agent" -}}{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "kubecdc.serviceAccounts" -}}
{{- $root := . -}}{{- $names := list -}}
{{- range include "kubecdc.components" . | fromJsonArray -}}
{{- $names = append $names (include "kubecdc.serviceAccount" (dict "root" $root "component" .)) -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}
