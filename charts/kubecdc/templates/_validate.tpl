{{/* The errors that the schema cannot find. Each names the fix. */}}
{{- define "kubecdc.validate" -}}
{{- $v := .Values -}}
{{- $root := . -}}
{{- $c := $v.config | default dict -}}
{{- $bus := include "kubecdc.bus" . | fromYaml -}}
{{- if hasKey $c "relay" -}}
{{- fail "config.relay: renamed to config.relays" -}}
{{- end -}}
{{- if not $bus -}}
{{- fail (printf "\n\nbus: is missing. Set one of\n%s\nor install a NATS server too, for a first try:\n  --set nats.enabled=true\n" (include "kubecdc.busExamples" .)) -}}
{{- end -}}
{{- if gt (len $bus) 1 -}}
{{- fail (printf "bus: must be exactly one, got %s (bus overrides config.bus%s)" (keys $bus | sortAlpha | join ", ") ($v.nats.enabled | ternary ", and nats.enabled sets bus.nats" "")) -}}
{{- end -}}
{{- with include "kubecdc.ofBus" (dict "key" "missing" "bus" $bus "at" "bus") -}}
{{- fail . -}}
{{- end -}}
{{- range include "kubecdc.addresses" . | fromJsonArray -}}
{{- if regexMatch "://[^/?#]*@" . -}}
{{- fail (printf "the URL of %s must not contain a user or a password: put them into files (auth, headersFile, tokenFile), mounted by `secrets`" (regexReplaceAll "^[a-z]+://[^/?#]*@" . "" | include "kubecdc.place")) -}}
{{- end -}}
{{- end -}}
{{- include "kubecdc.ofBus" (dict "key" "secrecy" "bus" $bus "at" "bus") -}}
{{- range $i, $relay := $c.relays -}}
{{- include "kubecdc.ofBus" (dict "key" "secrecy" "bus" ($relay.to | default dict) "at" (printf "config.relays[%d].to" $i)) -}}
{{- end -}}
{{- include "kubecdc.ofBus" (dict "key" "secrecy" "bus" (pick ($c.claimCheck | default dict) "http") "at" "config.claimCheck") -}}
{{- if ($c.tracing).enabled -}}
{{- include "kubecdc.httpSecrecy" (dict "at" "config.tracing" "key" "endpoint" "of" $c.tracing) -}}
{{- end -}}
{{- $election := include "kubecdc.election" . -}}
{{- if and (gt (int $v.replicas) 1) (not $election) -}}
{{- fail "replicas: must be 1 without leader election (config.leaderElection.enabled: false); otherwise each replica sends each event" -}}
{{- end -}}
{{- if and ($c.checkpoint).file $election -}}
{{- fail "config.checkpoint.file: replicas cannot share a file: remove it to use a ConfigMap, or set replicas: 1 and config.leaderElection.enabled: false" -}}
{{- end -}}
{{- if lt (int $v.terminationGracePeriodSeconds) (add (int $v.grace) 10 | int) -}}
{{- fail (printf "terminationGracePeriodSeconds: must be at least grace + 10 s (%d), for the last checkpoint and the Lease, got %d" (add (int $v.grace) 10) (int $v.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- $address := ($c.server).address | default ":8080" | toString -}}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\])?:[1-9][0-9]*$" $address) -}}
{{- fail (printf "config.server.address: must be :PORT, so that probes and Prometheus can connect, got %q" $address) -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.extraEgress) -}}
{{- range include "kubecdc.ports" . | fromJsonArray -}}
{{- if contains "$" . -}}
{{- fail (printf "networkPolicy: the chart does not know the value of %s, and so not its port: write the port after it, or permit the connection in networkPolicy.extraEgress" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled $v.podMonitor.enabled -}}
{{- fail "serviceMonitor, podMonitor: enable only one of them; otherwise Prometheus counts everything twice" -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (not $v.service.enabled) -}}
{{- fail "serviceMonitor: requires service.enabled; or enable podMonitor instead" -}}
{{- end -}}
{{- $mounts := dict "/etc/kubecdc" "config" -}}
{{- range $v.secrets -}}
{{- $path := default (printf "/var/run/secrets/kubecdc/%s" .name) .mountPath -}}
{{- if hasKey $mounts $path -}}{{- fail (printf "secrets: %s and %[3]s cannot both be mounted at %[2]s: set another mountPath" .name $path (get $mounts $path)) -}}{{- end -}}
{{- if or (hasPrefix "/etc/kubecdc/" $path) -}}{{- fail (printf "secrets: %s cannot be mounted at %s, inside the read-only directory of the configuration: set another mountPath" .name $path) -}}{{- end -}}
{{- $_ := set $mounts $path .name -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if has .name (list "POD_NAME" "POD_NAMESPACE" "NODE_NAME" "KUBECDC_AGENT" "KUBECDC_SOCKET") -}}{{- fail (printf "extraEnv: %s is reserved: the chart sets it" .name) -}}{{- end -}}
{{- end -}}
{{- if include "kubecdc.nodeConfigMaps" . -}}
{{- $in := include "kubecdc.checkpointNamespace" . -}}
{{- if eq $in .Release.Namespace -}}
{{- fail (printf "node.checkpointNamespace: must not be %s, the namespace of the release: each node may change ConfigMaps of the namespace, and the agents' configurations are among them. Name one that has nothing else" $in) -}}
{{- end -}}
{{- if gt (len $in) 63 -}}
{{- fail (printf "node.checkpointNamespace: %s has %d characters, and a namespace at most 63: create a namespace that has nothing else, and name it here" $in (len $in)) -}}
{{- end -}}
{{- end -}}
{{- $accounts := dict -}}
{{- range $component := include "kubecdc.components" . | fromJsonArray -}}
{{- $account := include "kubecdc.serviceAccount" (dict "root" $root "component" $component) -}}
{{- if hasKey $accounts $account -}}
{{- fail (printf "serviceAccount.node: must be another account than that of the central agent, got %q for both: root on any node could use its permissions" $account) -}}
{{- end -}}
{{- $_ := set $accounts $account $component -}}
{{- end -}}
{{- if $v.rbac.create -}}
{{- range $i, $rule := $c.watch -}}
{{- range $text := concat (.resources | default list) (.except | default list) (.namespaces | default list) (list (.fieldSelector | default "")) -}}
{{- if contains "$" (toString $text) -}}
{{- fail (printf "config.watch[%d]: the roles need its values, and the chart does not know the value of %s: write it out, or set rbac.create: false and apply the output of `kubecdc rbac`" $i $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if has $v.mode (list "node" "both") -}}
{{- $known := include "kubecdc.known" . | fromJson -}}
{{- range $i, $rule := $c.watch -}}
{{- $parsed := include "kubecdc.rule" (dict "rule" $rule "known" $known) | fromJson -}}
{{- $q := dict "rule" $parsed "group" "" "version" "v1" -}}
{{- if and (regexMatch "(^|,)\\s*spec\\.nodeName\\s*[!=]" $parsed.fieldSelector) (or (eq $v.mode "node") (include "kubecdc.takes" (set $q "resource" "pods"))) -}}
{{- fail (printf "config.watch[%d].fieldSelector: must not select pods by spec.nodeName in the modes node and both: each agent on a node captures the pods of its node, and the central agent those without a node" $i) -}}
{{- end -}}
{{- end -}}
{{- if not (include "kubecdc.watch" (dict "root" . "component" "node") | fromYamlArray) -}}
{{- fail "mode: the agents on nodes would have nothing to do, because no rule of config.watch selects pods or nodes: set mode: cluster" -}}
{{- end -}}
{{- if and $c.relays (not (has "agent" (include "kubecdc.components" . | fromJsonArray))) -}}
{{- fail "config.relays: the central agent runs them, but there is none, because no rule of config.watch selects pods: run `kubecdc relay` separately" -}}
{{- end -}}
{{- end -}}
{{- if eq $v.mode "node" -}}
{{- $known := include "kubecdc.known" . | fromJson -}}
{{- $local := list "pods" "nodes" "csinodes" "leases" "resourceslices" -}}
{{- range $i, $rule := $c.watch -}}
{{- $parsed := include "kubecdc.rule" (dict "rule" $rule "known" $known) | fromJson -}}
{{- range $parsed.resources -}}
{{- if or (and (eq .resource "*") .any) (and (hasKey $known .resource) (not (has .resource $local))) -}}
{{- fail (printf "config.watch[%d].resources: the API server cannot select %s by node: set mode: both, so that the central agent captures them, or remove them" $i (eq .resource "*" | ternary "all resources" .text)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty if a URL, or host:port, is of another machine and without TLS. The value of a variable is not known here. */}}
{{- define "kubecdc.remote" -}}
{{- if not (or (contains "$" .) (regexMatch "^(https|tls|wss)://" .) (regexMatch "^([a-z]+://)?(localhost|127\\.[0-9.]+|\\[::1\\])([:/].*)?$" .)) -}}true{{- end -}}
{{- end -}}

{{/* Fails if headers or a token would be sent unencrypted over HTTP, unless that is permitted: {at, key, of}. */}}
{{- define "kubecdc.httpSecrecy" -}}
{{- if and (or .of.headersFile .of.tokenFile) (not (eq (toString .of.insecure) "true")) (get .of .key | toString | include "kubecdc.remote") -}}
{{- fail (printf "%s.%s: would be sent unencrypted: use https:// in %s.%s; or permit it with %s.insecure: true" .at (empty .of.tokenFile | ternary "headersFile" "tokenFile") .at .key .at) -}}
{{- end -}}
{{- end -}}
