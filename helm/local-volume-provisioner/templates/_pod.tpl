{{/* The securityContext: as given, and what it leaves open by the mode. */}}
{{- define "local-volume-provisioner.securityContext" -}}
{{- $given := deepCopy (.Values.securityContext | default dict) -}}
{{- $mode := dict "privileged" true "readOnlyRootFilesystem" true -}}
{{- if include "local-volume-provisioner.isUnprivileged" . -}}{{- $mode = include "local-volume-provisioner.unprivileged" . | fromYaml -}}{{- end -}}
{{- include "local-volume-provisioner.complete" (list $given $mode) -}}
{{- toYaml $given -}}
{{- end -}}

{{/* "true" if the container does without privileges. The map wins over the key beside it. */}}
{{- define "local-volume-provisioner.isUnprivileged" -}}
{{- $map := .Values.securityContext | default dict -}}
{{- include "local-volume-provisioner.isFalse" (hasKey $map "privileged" | ternary $map.privileged .Values.privileged) -}}
{{- end -}}

{{/* Adds to a map what it lacks of another (list: map, other). Sprig's merge would take `false` for lacking. */}}
{{- define "local-volume-provisioner.complete" -}}
{{- $map := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if not (hasKey $map $key) -}}
{{- $_ := set $map $key $value -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $map $key)) -}}
{{- include "local-volume-provisioner.complete" (list (get $map $key) $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Deleting a tenant's tree requires: to enter and empty directories of any owner and mode (the first two), to change files
of any owner (FOWNER), and to clear the immutable flag (LINUX_IMMUTABLE). Marks on filesystems, trim, and btrfs subvolumes
require SYS_ADMIN. SELinux would keep a confined container out of other pods' files, hence spc_t; nodes without SELinux
ignore it.
*/}}
{{- define "local-volume-provisioner.unprivileged" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0
capabilities:
  drop: [ALL]
  add: [DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, LINUX_IMMUTABLE{{ if ne .Values.marks "Node" }}, SYS_ADMIN{{ end }}]
seccompProfile:
  type: RuntimeDefault
seLinuxOptions:
  type: spc_t
{{- end -}}

{{/* The security context of containers that only send requests to the API server. */}}
{{- define "local-volume-provisioner.restricted" -}}
runAsNonRoot: true
runAsUser: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The port of metrics, probes and status. */}}
{{- define "local-volume-provisioner.metricsPort" -}}
{{- .Values.metricsPort | default 8080 | int -}}
{{- end -}}

{{/* The argument for that port, unless it is the program's default. */}}
{{- define "local-volume-provisioner.listenAddress" -}}
{{- $port := include "local-volume-provisioner.metricsPort" . -}}
{{- if ne $port "8080" -}}--listen-address=:{{ $port }}{{- end -}}
{{- end -}}

{{/* A probe (list: given, default). What has a handler of its own is taken as it is. */}}
{{- define "local-volume-provisioner.probe" -}}
{{- $given := deepCopy (index . 0 | default dict) -}}
{{- if not (or $given.httpGet $given.tcpSocket $given.exec $given.grpc) -}}
{{- include "local-volume-provisioner.complete" (list $given (index . 1 | fromYaml)) -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}

{{/* /healthz and not /ready: the latter is strict, and one bad disk would stop a rollout. */}}
{{- define "local-volume-provisioner.alive" -}}
httpGet:
  path: /healthz
  port: metrics
{{- end -}}

{{/* The first pass ends within a second or two; a probe before that would fail with an event. */}}
{{- define "local-volume-provisioner.readinessProbe" -}}
{{ include "local-volume-provisioner.alive" . }}
initialDelaySeconds: 2
{{- end -}}

{{- define "local-volume-provisioner.livenessProbe" -}}
{{ include "local-volume-provisioner.alive" . }}
periodSeconds: 30
timeoutSeconds: 5
failureThreshold: 6
{{- end -}}

{{/*
The directories of the host, as a list of: name, hostPath, type, mountPath, readOnly, mountPropagation.
A directory that classes share is mounted once. What the provisioner mounts in it itself must reach the kubelet.
*/}}
{{- define "local-volume-provisioner.hostPaths" -}}
{{- $propagations := dict -}}
{{- range .Values.classes -}}
{{- if (.devices | default dict).filesystem -}}
{{- $_ := set $propagations (clean (.mountDir | default .hostDir)) "Bidirectional" -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $class := .Values.classes }}
{{- $mountPath := clean ($class.mountDir | default $class.hostDir) }}
{{- if not (hasKey $seen $mountPath) }}
{{- $_ := set $seen $mountPath true }}
- name: {{ include "local-volume-provisioner.volumeName" $class.name | quote }}
  hostPath: {{ clean $class.hostDir | quote }}
  {{- if include "local-volume-provisioner.isFalse" $class.createHostDir }}
  type: Directory
  {{- end }}
  mountPath: {{ $mountPath | quote }}
  mountPropagation: {{ get $propagations $mountPath | default "HostToContainer" }}
{{- end }}
{{- end }}
{{- range $part := list "pods" "plugins" }}
- name: provisioner-kubelet-{{ $part }}
  hostPath: {{ printf "%s/%s" (include "local-volume-provisioner.kubeletDir" $) $part | quote }}
  mountPath: {{ printf "%s/%s" (include "local-volume-provisioner.kubeletDir" $) $part | quote }}
  mountPropagation: HostToContainer
  readOnly: true
{{- end }}
- name: provisioner-udev
  hostPath: /run/udev/data
  mountPath: /run/udev/data
  readOnly: true
- name: provisioner-state
  hostPath: /var/lib/local-volume-provisioner
  mountPath: /var/lib/local-volume-provisioner
- name: provisioner-links
  hostPath: /run/local-volume-provisioner
  mountPath: /run/local-volume-provisioner
{{- if not (or (include "local-volume-provisioner.isFalse" .Values.mountDevVolume) (hasKey $seen "/dev")) }}
- name: provisioner-dev
  hostPath: /dev
  type: Directory
  mountPath: /dev
  {{- if include "local-volume-provisioner.isUnprivileged" . }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end -}}

{{/* "true" if the container does not see the host's /dev. */}}
{{- define "local-volume-provisioner.lacksDev" -}}
{{- $paths := list -}}
{{- range concat (include "local-volume-provisioner.hostPaths" . | fromYamlArray) (.Values.additionalVolumeMounts | default list) -}}
{{- $paths = append $paths (clean .mountPath) -}}
{{- end -}}
{{- has "/dev" $paths | not | ternary "true" "" -}}
{{- end -}}

{{- define "local-volume-provisioner.kubeletDir" -}}
{{- clean (.Values.kubeletDir | default "/var/lib/kubelet") -}}
{{- end -}}

{{/*
A class's name where it can name a volume, so that initContainers can mount it; else a hash. What begins with
"provisioner-" is ours.
*/}}
{{- define "local-volume-provisioner.volumeName" -}}
{{- if and (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) (le (len .) 63) (not (hasPrefix "provisioner-" .)) -}}
{{- . -}}
{{- else -}}
{{- printf "class-%s" (sha256sum . | trunc 16) -}}
{{- end -}}
{{- end -}}
