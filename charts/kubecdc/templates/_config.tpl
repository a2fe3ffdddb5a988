{{/*
A pattern of a resource as the agent reads it: {resource, version, group, core, groups}. groups: those in which it can match. If there are
none, it can match in each.
*/}}
{{- define "kubecdc.pattern" -}}
{{- $text := .text -}}
{{- $name := regexFind "^[^.]*" $text -}}
{{- $rest := trimPrefix $name $text -}}
{{- $dotted := hasPrefix "." $rest -}}
{{- $rest = trimPrefix "." $rest -}}
{{- $version := "" -}}
{{- $first := regexFind "^[^.]*" $rest -}}
{{- if regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" $first -}}
{{- $version = $first -}}
{{- $rest = trimPrefix $first $rest | trimPrefix "." -}}
{{- end -}}
{{- $core := and $dotted (eq $rest "") -}}
{{- if and $version (eq $rest "") -}}{{- $core = true -}}{{- end -}}
{{- $groups := list -}}
{{- $any := false -}}
{{- if $core -}}{{- $groups = list "" -}}
{{- else if $rest -}}{{- $groups = list $rest -}}
{{- else if eq $name "*" -}}{{- $any = true -}}
{{- else if hasKey .known $name -}}{{- $groups = get .known $name -}}
{{- else -}}{{- $any = true -}}
{{- end -}}
{{- dict "text" $text "resource" $name "version" $version "groups" $groups "any" $any | toJson -}}
{{- end -}}

{{/* Reports whether a pattern matches the resource: {pattern, group, version, resource}. "1" or nothing. */}}
{{- define "kubecdc.matches" -}}
{{- $p := .pattern -}}
{{- if and (or (eq $p.resource "*") (eq $p.resource .resource)) (or (not $p.version) (eq $p.version .version)) (or $p.any (has .group $p.groups)) -}}1{{- end -}}
{{- end -}}

{{/* Reports whether a rule takes the resource: {rule (parsed), group, version, resource}. "1" or nothing. */}}
{{- define "kubecdc.takes" -}}
{{- $in := "" -}}{{- $out := "" -}}
{{- $q := dict "group" .group "version" .version "resource" .resource -}}
{{- range .rule.resources -}}{{- if include "kubecdc.matches" (set $q "pattern" .) -}}{{- $in = "1" -}}{{- end -}}{{- end -}}
{{- range .rule.except -}}{{- if include "kubecdc.matches" (set $q "pattern" .) -}}{{- $out = "1" -}}{{- end -}}{{- end -}}
{{- if and $in (not $out) -}}1{{- end -}}
{{- end -}}

{{/* A rule of watch with its patterns parsed, its namespaces as text: {literal, all, namespaces}. */}}
{{- define "kubecdc.rule" -}}
{{- $known := .known -}}
{{- $resources := list -}}{{- $except := list -}}{{- $namespaces := list -}}{{- $literal := true -}}{{- $everywhere := false -}}{{- $excludes := false -}}
{{- range .rule.resources -}}{{- $resources = append $resources (include "kubecdc.pattern" (dict "text" (toString .) "known" $known) | fromJson) -}}{{- end -}}
{{- range .rule.except -}}{{- $except = append $except (include "kubecdc.pattern" (dict "text" (toString .) "known" $known) | fromJson) -}}{{- end -}}
{{- range .rule.namespaces -}}
{{- $n := kindIs "float64" . | ternary (printf "%.0f" (float64 .)) (toString .) -}}
{{- $namespaces = append $namespaces $n -}}
{{- if regexMatch "[!*?]" $n -}}{{- $literal = false -}}{{- end -}}
{{- if regexMatch "^\\*+$" $n -}}{{- $everywhere = true -}}{{- end -}}
{{- if regexMatch "^!\\*+$" $n -}}{{- $excludes = true -}}{{- end -}}
{{- end -}}
{{- $clusterwide := or (not $namespaces) (and $everywhere (not $excludes)) -}}
{{- dict "resources" $resources "except" $except "namespaces" $namespaces "literal" (and $literal (gt (len $namespaces) 0)) "clusterwide" $clusterwide "labelSelector" (.rule.labelSelector | default "" | toString) "fieldSelector" (.rule.fieldSelector | default "" | toString) | toJson -}}
{{- end -}}

{{/* The resources that Kubernetes itself serves, and the groups they are in. */}}
{{- define "kubecdc.known" -}}
{{- .Files.Get "files/resources.json" -}}
{{- end -}}

{{/*
The rules of a component: {root, component}. In mode both, the agents on the nodes have the rules that take pods and nodes, and the central
agent has all rules. In mode node, both have these rules. The central agent captures the deletions of nodes with them, because the agent of
a deleted node is gone. Without a rule that takes pods, there is no central agent.
*/}}
{{- define "kubecdc.watch" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $mode := $root.Values.mode -}}
{{- $watch := ($root.Values.config | default dict).watch | default list -}}
{{- if not $watch -}}
{{- if eq $mode "node" -}}{{- $watch = list (dict "resources" (list "pods" "nodes")) -}}
{{- else -}}{{- $watch = $root.Files.Get "files/watch.yaml" | fromYamlArray -}}
{{- end -}}
{{- if and (eq $mode "both") (include "kubecdc.nodeConfigMaps" $root) -}}
{{- /* The central agent would send each save of a node's checkpoint. */ -}}
{{- range $watch -}}{{- $_ := set . "namespaces" (list "*" (printf "!%s" (include "kubecdc.checkpointNamespace" $root))) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $central := and (eq $mode "node") (eq $component "agent") -}}
{{- if not (or $central (and (eq $mode "both") (eq $component "node"))) -}}
{{- toYaml $watch -}}
{{- else -}}
{{- $known := include "kubecdc.known" $root | fromJson -}}
{{- $seen := dict -}}{{- $rules := list -}}
{{- range $rule := $watch -}}
{{- $parsed := include "kubecdc.rule" (dict "rule" $rule "known" $known) | fromJson -}}
{{- $resources := list -}}
{{- range $name := list "pods" "nodes" -}}
{{- $can := or (ne $name "nodes") $parsed.clusterwide -}}
{{- if and $can (include "kubecdc.takes" (dict "rule" $parsed "group" "" "version" "v1" "resource" $name)) -}}
{{- /* A later rule takes the objects that the earlier ones leave. */ -}}
{{- $before := get $seen $name | default list -}}
{{- if include "kubecdc.reachable" (dict "rules" (append $before $parsed) "namespaced" (ne $name "nodes")) | fromJsonArray | len | eq (len (append $before $parsed)) -}}
{{- $_ := set $seen $name (append $before $parsed) -}}
{{- $text := $name -}}
{{- range $parsed.resources -}}{{- if eq .resource $name -}}{{- $text = .text -}}{{- end -}}{{- end -}}
{{- $resources = append $resources $text -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $resources -}}
{{- $rules = append $rules (set (omit $rule "except") "resources" $resources) -}}
{{- end -}}
{{- end -}}
{{- if and $central (not (hasKey $seen "pods")) -}}{{- $rules = list -}}{{- end -}}
{{- toYaml $rules -}}
{{- end -}}
{{- end -}}

{{/*
A mapping whose keys are overridden by another's: {under, over}. sprig's merge and mergeOverwrite treat false and 0 as absent. Null removes
a key.
*/}}
{{- define "kubecdc.overlay" -}}
{{- $result := deepCopy (.under | default dict) -}}
{{- range $key, $value := .over | default dict -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $result $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $result $key)) -}}
{{- $_ := set $result $key (include "kubecdc.overlay" (dict "under" (get $result $key) "over" $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{/* The bus: config.bus, overridden by the values' bus, and the NATS server of this chart if there is one. */}}
{{- define "kubecdc.bus" -}}
{{- $bus := include "kubecdc.overlay" (dict "under" (.Values.config | default dict).bus "over" .Values.bus) | fromJson -}}
{{- if .Values.nats.enabled -}}
{{- $nats := $bus.nats | default dict -}}
{{- if not $nats.url -}}
{{- $bus = set $bus "nats" (set $nats "url" (printf "nats://%s.%s:4222" (include "kubecdc.nats" .) .Release.Namespace)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $bus -}}
{{- end -}}

{{- define "kubecdc.nats" -}}
{{- include "nats.fullname" . -}}
{{- end -}}

{{/* A component's configuration: {root, component}. */}}
{{- define "kubecdc.config" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $fullname := include "kubecdc.fullname" $root -}}
{{- $c := deepCopy ($v.config | default dict) -}}
{{- $c = set $c "apiVersion" "kubecdc.dev/v1" -}}
{{- $c = set $c "watch" (include "kubecdc.watch" . | fromYamlArray) -}}
{{- $c = set $c "bus" (include "kubecdc.bus" $root | fromYaml) -}}
{{- if not $c.cluster -}}{{- $c = omit $c "cluster" -}}{{- end -}}
{{- if eq .component "node" -}}
{{- $c = set (omit $c "relays" "leaderElection") "mode" "node" -}}
{{- if eq $v.node.checkpoint "configMap" -}}
{{- $c = set $c "checkpoint" (dict "configMap" (dict "namespace" (include "kubecdc.checkpointNamespace" $root) "name" (printf "%s-checkpoint-${NODE_NAME}" $fullname))) -}}
{{- else -}}
{{- $c = set $c "checkpoint" (dict "file" (dict "path" "/var/lib/kubecdc/checkpoint.json")) -}}
{{- end -}}
{{- else -}}
{{- $central := ne $v.mode "cluster" -}}
{{- $c = set $c "mode" (ternary "central" "cluster" $central) -}}
{{- $c = set $c "leaderElection" (include "kubecdc.overlay" (dict "under" (dict "enabled" true "lease" $fullname) "over" $c.leaderElection) | fromJson) -}}
{{- if and (not $c.checkpoint) (not (hasKey $c.bus "stdout")) -}}
{{- $c = set $c "checkpoint" (dict "configMap" (dict "namespace" $root.Release.Namespace "name" (printf "%s-%s" $fullname (ternary "central-checkpoint" "checkpoint" $central)))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $c -}}
{{- end -}}
