module firecracker_types

go 1.19

require (
	github.com/firecracker-microvm/firecracker-go-sdk v1.0.0
	github.com/go-openapi/strfmt v0.21.2
)
