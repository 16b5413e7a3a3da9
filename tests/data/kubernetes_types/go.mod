module manifests

go 1.24.0

require (
	k8s.io/api v0.34.3
	kubevirt.io/api v1.9.0
)
