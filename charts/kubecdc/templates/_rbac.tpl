{{/*
What a component's agent has to be allowed, as `kubecdc rbac` prints it: {root, component} → {NAMESPACE: rules}; "" is the
ClusterRole. The tests compare the two for every set of values.
*/}}
{{- define "kubecdc.rules" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $c := include "kubecdc.config" . | fromYaml -}}
{{- $known := include "kubecdc.known" $root | fromJson -}}
{{- $access := dict -}}
{{- $events := false -}}
{{- $pods := false -}}
{{- range $rule := $c.watch -}}
{{- $r := include "kubecdc.rule" (dict "rule" $rule "known" $known) | fromJson -}}
{{- $q := dict "rule" $r "version" "v1" "resource" "events" -}}
{{- $eventGroup := "" -}}{{- $takesEvents := true -}}
{{- if not (include "kubecdc.takes" (set $q "group" "")) -}}
{{- $takesEvents = not (not (include "kubecdc.takes" (set $q "group" "events.k8s.io"))) -}}
{{- if $takesEvents -}}{{- $eventGroup = "events.k8s.io" -}}{{- end -}}
{{- end -}}
{{- $only := include "kubecdc.onlyName" $r.fieldSelector -}}
{{- $namespaces := ternary $r.namespaces (list "") $r.literal -}}
{{- if include "kubecdc.takes" (dict "rule" $r "group" "" "version" "v1" "resource" "pods") -}}{{- $pods = true -}}{{- end -}}
{{- range $p := $r.resources -}}
{{- range $group := ternary (list "*") $p.groups $p.any -}}
{{- $wanted := true -}}
{{- if ne $p.resource "*" -}}
{{- range $r.except -}}
{{- if and (not .version) (include "kubecdc.matches" (dict "pattern" . "group" $group "version" "" "resource" $p.resource)) -}}{{- $wanted = false -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $p.resource "events") (has $group (list "" "events.k8s.io")) (or $events (ne $group $eventGroup)) -}}{{- $wanted = false -}}{{- end -}}
{{- if and (eq $component "agent") (ne $root.Values.mode "cluster") (eq $p.resource "nodes") (eq $group "") -}}{{- $wanted = false -}}{{- end -}}
{{- if $wanted -}}
{{- /* Of Leases, those in kube-node-lease belong to nodes. */ -}}
{{- $lease := and (eq $component "node") (eq $p.resource "leases") (eq $group "coordination.k8s.io") -}}
{{- range $namespace := ternary (list "kube-node-lease") $namespaces $lease -}}
{{- $_ := set $access (printf "%s\t%s\t%s\t%s" $namespace $group $only $p.resource) (dict "namespace" $namespace "group" $group "name" $only "resource" $p.resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $takesEvents -}}{{- $events = true -}}{{- end -}}
{{- end -}}
{{- if and $pods (eq $component "agent") (ne $root.Values.mode "cluster") -}}
{{- /* The companion follows which nodes go. */ -}}
{{- $_ := set $access "\t\t\tnodes" (dict "namespace" "" "group" "" "name" "" "resource" "nodes") -}}
{{- end -}}
{{- $kubeSystem := dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get") -}}
{{- $rules := dict "" (list $kubeSystem) -}}
{{- $last := "" -}}
{{- range $key := keys $access | sortAlpha -}}
{{- $b := get $access $key -}}
{{- $covered := false -}}
{{- range $other, $a := $access -}}
{{- if and (ne $other $key) (or (not $a.namespace) (eq $a.namespace $b.namespace)) (has $a.group (list "*" $b.group)) (has $a.resource (list "*" $b.resource)) (or (not $a.name) (eq $a.name $b.name)) -}}
{{- $covered = true -}}
{{- end -}}
{{- end -}}
{{- if not $covered -}}
{{- $of := get $rules $b.namespace | default list -}}
{{- $at := printf "%s\t%s\t%s" $b.namespace $b.group $b.name -}}
{{- if eq $at $last -}}
{{- $rule := last $of -}}
{{- $_ := set $rule "resources" (append $rule.resources $b.resource) -}}
{{- else -}}
{{- $rule := dict "apiGroups" (list $b.group) "resources" (list $b.resource) "verbs" (list "list" "watch") -}}
{{- if $b.name -}}{{- $_ := set $rule "resourceNames" (list $b.name) -}}{{- end -}}
{{- $_ := set $rules $b.namespace (append $of $rule) -}}
{{- end -}}
{{- $last = $at -}}
{{- end -}}
{{- end -}}
{{- with ($c.checkpoint | default dict).configMap -}}
{{- $name := default "kubecdc-checkpoint" .name -}}
{{- $known := dict "apiGroups" (list "") "resources" (list "configmaps") "verbs" (list "get" "update") -}}
{{- if ne $component "node" -}}
{{- $_ := set $known "resourceNames" (list $name) -}}
{{- end -}}
{{- $create := dict "apiGroups" (list "") "resources" (list "configmaps") "verbs" (list "create") -}}
{{- $_ := set $rules .namespace (concat (get $rules .namespace | default list) (list $known $create)) -}}
{{- end -}}
{{- if and (eq $component "agent") (dig "leaderElection" "enabled" false $c) -}}
{{- $lease := $c.leaderElection -}}
{{- $namespace := default $root.Release.Namespace $lease.namespace -}}
{{- $hold := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list $lease.lease) "verbs" (list "get" "update") -}}
{{- $create := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create") -}}
{{- $_ := set $rules $namespace (concat (get $rules $namespace | default list) (list $hold $create)) -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}

{{/*
The one name that a field selector lets through, where there is one that the API server authorizes by: not one with a slash,
nor what is no name of a path.
*/}}
{{- define "kubecdc.onlyName" -}}
{{- $only := "" -}}
{{- range $term := splitList "," . -}}
{{- if and (not $only) (regexMatch "^metadata\\.name==?[^=]" $term) -}}
{{- $only = regexReplaceAll "^metadata\\.name==?" $term "" -}}
{{- end -}}
{{- end -}}
{{- if and $only (not (regexMatch "[/%\\\\]" $only)) (not (has $only (list "." ".."))) -}}{{- $only -}}{{- end -}}
{{- end -}}

{{/* Tells if all resources of all groups are allowed. "1" or nothing. */}}
{{- define "kubecdc.everything" -}}
{{- $root := . -}}
{{- range $component := include "kubecdc.components" . | fromJsonArray -}}
{{- range $namespace, $rules := include "kubecdc.rules" (dict "root" $root "component" $component) | fromJson -}}
{{- range $rules -}}
{{- if and (has "*" .apiGroups) (has "*" .resources) -}}1{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
