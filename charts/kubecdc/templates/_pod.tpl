{{/* The pod of a component: {root, component}. */}}
{{- define "kubecdc.pod" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $node := eq .component "node" -}}
{{- $fullname := include "kubecdc.fullname" $root -}}
{{- $onNode := and $node (eq $v.node.checkpoint "hostPath") -}}
{{- $resources := ternary $v.node.resources $v.resources $node -}}
{{- $env := list -}}
{{- range $v.extraEnv -}}{{- $env = append $env .name -}}{{- end -}}
metadata:
  labels:
    {{- merge (include "kubecdc.selectorLabels" $root | fromYaml) (dict "app.kubernetes.io/component" .component) ($v.commonLabels | default dict) ($v.podLabels | default dict) | toYaml | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: kubecdc
    {{- /* The agent reads these keys once, when it starts, and the others also while it runs. */}}
    {{- $fixed := omit (include "kubecdc.config" . | fromYaml) "watch" "strip" "noise" "redaction" }}
    {{- if kindIs "map" $fixed.log }}{{- $_ := set $fixed "log" (omit $fixed.log "level") }}{{- if not $fixed.log }}{{- $fixed = omit $fixed "log" }}{{- end }}{{- end }}
    checksum/config: {{ toYaml $fixed | sha256sum }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "kubecdc.serviceAccount" . | quote }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with (ternary (default $v.priorityClassName $v.node.priorityClassName) $v.priorityClassName $node) }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int $v.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- if $onNode }}
  initContainers:
    {{- /* The kubelet makes the directory for root, and fsGroup means nothing to a hostPath. */}}
    - name: directory
      image: {{ include "kubecdc.image" $root | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: ["node-directory", "/var/lib/kubecdc", "--owner", "65532:65532"]
      securityContext:
        runAsNonRoot: false
        runAsUser: 0
        runAsGroup: 0
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
          add: [CHOWN, DAC_OVERRIDE, FOWNER]
      resources:
        {{- toYaml $resources | nindent 8 }}
      volumeMounts:
        - name: checkpoint
          mountPath: /var/lib/kubecdc
  {{- end }}
  containers:
    - name: kubecdc
      image: {{ include "kubecdc.image" $root | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        - run
        - --config=/etc/kubecdc/kubecdc.yaml
        - --grace={{ int $v.grace }}s
        {{- range $v.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      env:
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        - name: NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        {{- /* For status, by kubectl exec. */}}
        - name: KUBECDC_AGENT
          value: "127.0.0.1:{{ include "kubecdc.port" $root }}"
        {{- /* For the agent, and for snapshot and profile, by kubectl exec. */}}
        - name: KUBECDC_SOCKET
          value: /run/kubecdc/agent.sock
        {{- with (($resources).limits).memory }}
        {{- if not (has "GOMEMLIMIT" $env) }}
        - name: GOMEMLIMIT
          {{- with include "kubecdc.gomemlimit" . }}
          value: {{ . | quote }}
          {{- else }}
          valueFrom:
            resourceFieldRef:
              resource: limits.memory
          {{- end }}
        {{- end }}
        {{- end }}
        {{- with $v.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: metrics
          containerPort: {{ include "kubecdc.port" $root }}
          protocol: TCP
      {{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
      {{- with get $v.probes $probe }}
      {{ $probe }}Probe:
        httpGet:
          path: {{ $path }}
          port: metrics
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with $resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: config
          mountPath: /etc/kubecdc
          readOnly: true
        - name: run
          mountPath: /run/kubecdc
        {{- if $onNode }}
        - name: checkpoint
          mountPath: /var/lib/kubecdc
        {{- end }}
        {{- range $i, $secret := $v.secrets }}
        - name: secret-{{ $i }}
          mountPath: {{ default (printf "/var/run/secrets/kubecdc/%s" .name) .mountPath | quote }}
          readOnly: true
        {{- end }}
        {{- with $v.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ printf "%s%s" $fullname ($node | ternary "-node" "") | quote }}
    {{- /* The agent's socket; tmpfs, and no more than that. */}}
    - name: run
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- if $onNode }}
    - name: checkpoint
      hostPath:
        path: {{ default (printf "/var/lib/kubecdc/%s/%s" $root.Release.Namespace $fullname) $v.node.hostPath | quote }}
        type: DirectoryOrCreate
    {{- end }}
    {{- range $i, $secret := $v.secrets }}
    - name: secret-{{ $i }}
      secret:
        secretName: {{ .name | quote }}
        {{- /* 0440: the agent's group, by fsGroup. */}}
        defaultMode: 288
        {{- with .items }}
        items:
          {{- range $key, $file := . }}
          - key: {{ $key | quote }}
            path: {{ $file | quote }}
          {{- end }}
        {{- end }}
        {{- if .optional }}
        optional: true
        {{- end }}
    {{- end }}
    {{- with $v.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
