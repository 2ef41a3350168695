// Makes one call of the interop table with connect-go.
package main

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	v1 "example.com/interop/gen/berth/v1"
	"example.com/interop/gen/berth/v1/berthv1connect"
	"example.com/interop/interop"
)

type client struct {
	processes berthv1connect.ProcessServiceClient
	sandboxes berthv1connect.SandboxServiceClient
}

type stream struct {
	*connect.ServerStreamForClient[v1.ExecResponse]
}

func (s stream) Next() (*v1.ExecResponse, error) {
	if s.Receive() {
		return s.Msg(), nil
	}
	return nil, s.Err()
}

func (c client) Run(ctx context.Context, request *v1.RunCommandRequest) (*v1.RunCommandResponse, error) {
	answer, err := c.processes.RunCommand(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func (c client) Exec(ctx context.Context, request *v1.ExecRequest) (interop.Stream, error) {
	responses, err := c.processes.Exec(ctx, connect.NewRequest(request))
	return stream{responses}, err
}

// GetSandbox is a read, which goes by GET.
func (c client) GetSandbox(ctx context.Context, request *v1.GetSandboxRequest) error {
	_, err := c.sandboxes.GetSandbox(ctx, connect.NewRequest(request))
	return err
}

func (client) Code(err error) int {
	if err == nil {
		return 0
	}
	return int(connect.CodeOf(err))
}

func (client) Detail(err error) *v1.ErrorDetail {
	var failure *connect.Error
	if !errors.As(err, &failure) {
		return nil
	}
	for _, detail := range failure.Details() {
		if value, err := detail.Value(); err == nil {
			if found, ok := value.(*v1.ErrorDetail); ok {
				return found
			}
		}
	}
	return nil
}

func main() {
	interop.Main(func(address string) interop.Client {
		url := "http://" + address
		return client{
			berthv1connect.NewProcessServiceClient(http.DefaultClient, url),
			berthv1connect.NewSandboxServiceClient(http.DefaultClient, url, connect.WithHTTPGet()),
		}
	})
}
