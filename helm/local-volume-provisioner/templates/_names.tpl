{{- define "local-volume-provisioner.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the DaemonSet, and of all else that needs no word behind it. */}}
{{- define "local-volume-provisioner.fullname" -}}
{{- $name := include "local-volume-provisioner.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The same with a word behind it (list: context, word), no longer than a Service or a Job may be called. */}}
{{- define "local-volume-provisioner.called" -}}
{{- $word := index . 1 -}}
{{- $room := sub 62 (len $word) | int -}}
{{- printf "%s-%s" (include "local-volume-provisioner.fullname" (index . 0) | trunc $room | trimSuffix "-") $word -}}
{{- end -}}

{{/* What the DaemonSet selects its pods by. It cannot be changed later, so nothing else belongs here. */}}
{{- define "local-volume-provisioner.selector" -}}
app.kubernetes.io/name: {{ include "local-volume-provisioner.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "local-volume-provisioner.labels" -}}
{{ include "local-volume-provisioner.selector" . }}
{{ include "local-volume-provisioner.origin" . }}
{{- end -}}

{{/* Labels of pods (list: those of a selector, more, which take precedence over commonLabels, context). */}}
{{- define "local-volume-provisioner.podLabels" -}}
{{- merge (index . 0 | fromYaml) (index . 1 | default dict) ((index . 2).Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- define "local-volume-provisioner.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of what runs beside the DaemonSet. Another name, so that its selector does not match them. */}}
{{- define "local-volume-provisioner.uninstallLabels" -}}
app.kubernetes.io/name: {{ printf "%s-uninstall" (include "local-volume-provisioner.name" . | trunc 53 | trimSuffix "-") | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "local-volume-provisioner.serviceAccountName" -}}
{{- $made := not (include "local-volume-provisioner.isFalse" (.Values.serviceAccount | default dict).create) -}}
{{- (.Values.serviceAccount | default dict).name | default (ternary (include "local-volume-provisioner.fullname" .) "default" $made) -}}
{{- end -}}

{{/*
The image. There is no default while none is published. A text names all of it, so global.imageRegistry changes a map only, as
an absent image is with it.
*/}}
{{- define "local-volume-provisioner.image" -}}
{{- $registry := (.Values.global | default dict).imageRegistry | default "" -}}
{{- $image := .Values.image | default (ternary dict "" (ne $registry "")) -}}
{{- if kindIs "map" $image -}}
{{- $version := printf ":%s" ($image.tag | default .Chart.AppVersion) -}}
{{- with $image.digest -}}{{- $version = printf "@%s" . -}}{{- end -}}
{{- $registry = $registry | default $image.registry | default "" | trimSuffix "/" -}}
{{- $path := list $registry ($image.repository | default "local-volume-provisioner") | compact -}}
{{- $image = or $registry $image.repository | empty | ternary "" (printf "%s%s" (join "/" $path) $version) -}}
{{- else -}}
{{- $image = tpl $image . | trim -}}
{{- end -}}
{{- if not $image -}}
{{- fail (printf "image: none is set, and no registry has it yet; load that of a release or build it (docs/image.md), and set it: image: local-volume-provisioner:%s" .Chart.AppVersion) -}}
{{- end -}}
{{- if regexMatch "(^|/)(sig-storage|external_storage)/local-volume-provisioner(-[a-z0-9_]+)?([:@]|$)" $image -}}
{{- fail (printf "image: %s is the Go provisioner's; set this program's: image: local-volume-provisioner:%s" $image .Chart.AppVersion) -}}
{{- end -}}
{{- $image -}}
{{- end -}}

{{/* For what is off by default. "true" for what YAML 1.1 calls true, quoted or not; else nothing. */}}
{{- define "local-volume-provisioner.isTrue" -}}
{{- if has (toString . | lower) (list "true" "yes" "on" "y") -}}true{{- end -}}
{{- end -}}

{{/* For what is on by default: "true" for an explicit no. An absent value, or null, is none. */}}
{{- define "local-volume-provisioner.isFalse" -}}
{{- if has (toString . | lower) (list "false" "no" "off" "n") -}}true{{- end -}}
{{- end -}}

{{- define "local-volume-provisioner.subject" -}}
- kind: ServiceAccount
  name: {{ include "local-volume-provisioner.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* On OpenShift, the rule that lets a ServiceAccount use an SCC (list: context, name, its default). */}}
{{- define "local-volume-provisioner.scc" -}}
{{- $openshift := (index . 0).Values.openshift | default dict -}}
{{- if include "local-volume-provisioner.isTrue" $openshift.enabled -}}
# The SecurityContextConstraints of the pods.
- apiGroups: [security.openshift.io]
  resources: [securitycontextconstraints]
  resourceNames: [{{ index . 1 | default (index . 2) | quote }}]
  verbs: [use]
{{- end -}}
{{- end -}}
