#include "server/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/status.h"
#include "grpcpp/security/server_credentials.h"
#include "server/text_file.h"

namespace dcp::server {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not PEM"));
  }
  return text;
}

// What OpenSSL complained of last.
absl::Status SslError(absl::string_view path, absl::string_view what) {
  char reason[256];
  ERR_error_string_n(ERR_peek_last_error(), reason, sizeof(reason));
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what, " (", reason, ")"));
}

absl::Status CheckPair(const ServerOptions& options) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
      SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  SSL_CTX* const ssl = context.get();
  if (SSL_CTX_use_certificate_chain_file(ssl, options.tls_cert.c_str()) != 1) {
    return SslError(options.tls_cert, "is not a certificate chain");
  }
  if (SSL_CTX_use_PrivateKey_file(ssl, options.tls_key.c_str(),
                                  SSL_FILETYPE_PEM) != 1) {
    return SslError(options.tls_key,
                    absl::StrCat("is not the key of ", options.tls_cert));
  }
  if (!options.tls_client_ca.empty() &&
      SSL_CTX_load_verify_locations(ssl, options.tls_client_ca.c_str(),
                                    nullptr) != 1) {
    return SslError(options.tls_client_ca, "has no certificate");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const ServerOptions& options) {
  TlsFiles files;
  DCP_ASSIGN_OR_RETURN(files.cert, ReadPem(options.tls_cert));
  DCP_ASSIGN_OR_RETURN(files.key, ReadPem(options.tls_key));
  if (!options.tls_client_ca.empty()) {
    DCP_ASSIGN_OR_RETURN(files.client_ca, ReadPem(options.tls_client_ca));
  }
  DCP_RETURN_IF_ERROR(CheckPair(options));
  return files;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerOptions& options) {
  if (options.tls_cert.empty()) return grpc::InsecureServerCredentials();
  DCP_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(options));
  grpc::SslServerCredentialsOptions ssl(
      files.client_ca.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = std::move(files.client_ca);
  ssl.pem_key_cert_pairs.push_back(
      {std::move(files.key), std::move(files.cert)});
  return grpc::SslServerCredentials(ssl);
}

}  // namespace dcp::server
