{{/* The ConfigMap's data: what the program reads from its configuration directory. */}}
{{- define "local-volume-provisioner.config" -}}
{{- range $key := list "useJobForCleaning" "useNodeNameOnly" "setPVOwnerRef" "removeNodeNotReadyTaint" "pauseCleaning" }}
{{- if include "local-volume-provisioner.isTrue" (get $.Values $key) }}
{{ $key }}: "true"
{{- end }}
{{- end }}
protectReleasedData: {{ include "local-volume-provisioner.isFalse" .Values.protectReleasedData | empty | toString | quote }}
maxConcurrentCleanups: {{ .Values.maxConcurrentCleanups | default 4 | int | toString | quote }}
logLevel: {{ .Values.logLevel | default "info" | quote }}
{{- with .Values.minResyncPeriod }}
minResyncPeriod: {{ quote . }}
{{- end }}
{{- if include "local-volume-provisioner.isTrue" .Values.removeNodeNotReadyTaint }}
provisionerNotReadyNodeTaintKey: {{ include "local-volume-provisioner.taintKey" . | quote }}
{{- end }}
{{- with include "local-volume-provisioner.tolerations" . | fromYamlArray }}
jobTolerations: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.labelsForPV }}
labelsForPV: |
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeLabels }}
nodeLabelsForPV: |
  {{- toYaml . | nindent 2 }}
{{- end }}
storageClassMap: |
  {{- $classes := dict }}
  {{- range $given := .Values.classes }}
  {{- $class := dict "hostDir" $given.hostDir "mountDir" ($given.mountDir | default $given.hostDir) }}
  {{- range $key := list "volumeMode" "accessMode" "fsType" "namePattern" "selector" "cleanMethod" "blockCleanerCommand" "cleanupTimeout" "weakIdentity" "discoveryPolicy" "missingVolumePolicy" "binding" "devices" }}
  {{- with get $given $key }}
  {{- $_ := set $class $key . }}
  {{- end }}
  {{- end }}
  {{- if include "local-volume-provisioner.isFalse" $given.trim }}
  {{- $_ := set $class "trim" false }}
  {{- end }}
  {{- $_ := set $classes $given.name $class }}
  {{- end }}
  {{- toYaml $classes | nindent 2 }}
{{- end -}}

{{/* "true" if a class has binding: disk, which requires the directory of the links and labels of Nodes. */}}
{{- define "local-volume-provisioner.bindsToDisks" -}}
{{- range .Values.classes -}}{{- if eq (.binding | default "") "disk" -}}true{{- end -}}{{- end -}}
{{- end -}}

{{- define "local-volume-provisioner.taintKey" -}}
{{- .Values.provisionerNotReadyNodeTaintKey | default "sig-storage-local-static-provisioner/agent-not-ready" -}}
{{- end -}}

{{/* The given tolerations, and one for the taint that the program takes off: it could not start before. */}}
{{- define "local-volume-provisioner.tolerations" -}}
{{- $tolerations := .Values.tolerations | default list -}}
{{- if include "local-volume-provisioner.isTrue" .Values.removeNodeNotReadyTaint -}}
{{- $tolerations = append $tolerations (dict "key" (include "local-volume-provisioner.taintKey" .) "operator" "Exists") -}}
{{- end -}}
{{- toYaml $tolerations -}}
{{- end -}}
