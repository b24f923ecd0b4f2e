// TlsFiles: a server's certificate, key and authority, read and checked before
// gRPC gets them, because gRPC does not say what is wrong with them. Any
// thread.
#ifndef SERVER_TLS_FILES_H_
#define SERVER_TLS_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/server_options.h"

namespace dcp::server {

struct TlsFiles {
  std::string cert;       // PEM, the chain
  std::string key;        // PEM
  std::string client_ca;  // PEM; empty: clients show no certificate
};

// Of the paths in the options, which has a certificate. InvalidArgument names
// the file and what is wrong, also where key and certificate are not a pair.
absl::StatusOr<TlsFiles> ReadTlsFiles(const ServerOptions& options);

// TLS, mutual TLS, or none at all, as the options say.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerOptions& options);

}  // namespace dcp::server

#endif  // SERVER_TLS_FILES_H_
