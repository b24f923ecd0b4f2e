// SPDX-License-Identifier: Apache-2.0
// TlsFiles: a server's certificate and key and the clients' CA, read and
// checked before gRPC gets them, because gRPC does not say which mistake they
// have. Any thread.
#ifndef SERVER_TRANSPORT_TLS_FILES_H_
#define SERVER_TRANSPORT_TLS_FILES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"

namespace dcp::server {

// PEM files. Without a certificate there is no TLS; with a CA, clients must
// present certificates (mutual TLS).
struct TlsPaths {
  std::string cert;
  std::string key;
  std::string client_ca;
};

struct TlsFiles {
  std::string cert;       // PEM, the chain
  std::string key;        // PEM
  std::string client_ca;  // PEM; empty: clients present no certificate
};

// `paths.cert` is not empty. InvalidArgument names the file and the mistake,
// such as a key that does not match the certificate.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths);

// When the first of these PEM certificates expires.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& pem);

// Credentials of a server; the certificates may be replaced while it serves.
// gRPC 1.51 reads them only from files, and again when those change; it gets
// files in memory, which are written only after all certificates were found
// valid.
class ServerTls {
 public:
  // TLS, mutual TLS or neither, depending on which paths are empty.
  static absl::StatusOr<ServerTls> Load(TlsPaths paths);
  ServerTls(ServerTls&&) noexcept = default;
  ServerTls& operator=(ServerTls&&) = delete;

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const {
    return credentials_;
  }
  // Reads the files again; connections made about two seconds later use them.
  // On an error nothing changes. One thread at a time.
  absl::Status Reload();
  // When the server's certificate expires; InfiniteFuture without TLS.
  absl::Time expiry() const { return expiry_; }

 private:
  // A file that exists only in memory.
  class MemoryFile {
   public:
    MemoryFile();
    MemoryFile(MemoryFile&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)) {}
    MemoryFile& operator=(MemoryFile&&) = delete;
    ~MemoryFile();

    std::string path() const;
    void Write(const std::string& text) const;

   private:
    int fd_;
  };

  explicit ServerTls(TlsPaths paths) : paths_(std::move(paths)) {}

  TlsPaths paths_;
  MemoryFile cert_;
  MemoryFile key_;
  MemoryFile client_ca_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  absl::Time expiry_ = absl::InfiniteFuture();
};

}  // namespace dcp::server

#endif  // SERVER_TRANSPORT_TLS_FILES_H_
