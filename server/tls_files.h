// TlsFiles: a server's certificate, key and authority, read and checked before
// gRPC gets them, because gRPC does not say what is wrong with them. Any
// thread.
#ifndef SERVER_TLS_FILES_H_
#define SERVER_TLS_FILES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

// When the first of these certificates, in PEM, expires.
absl::StatusOr<absl::Time> ExpiryOf(const std::string& pem);

// A server's credentials, whose certificates may be replaced while it serves.
// gRPC 1.51 reads them from files only, and again when those change; it gets
// files in memory, which are written when all of them were found right.
class ServerTls {
 public:
  // TLS, mutual TLS, or none at all, as the options say. They outlive this.
  static absl::StatusOr<ServerTls> Load(const ServerOptions& options);
  ServerTls(ServerTls&&) noexcept = default;
  ServerTls& operator=(ServerTls&&) = delete;

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const {
    return credentials_;
  }
  // Reads the files again; connections that begin some two seconds later see
  // it. On an error everything stays as it was. One thread at a time.
  absl::Status Reload();
  // Of the server's certificate; InfiniteFuture without TLS.
  absl::Time expiry() const { return expiry_; }

 private:
  // A file that is only in memory.
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

  explicit ServerTls(const ServerOptions& options) : options_(options) {}

  ServerOptions options_;
  MemoryFile cert_;
  MemoryFile key_;
  MemoryFile client_ca_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  absl::Time expiry_ = absl::InfiniteFuture();
};

}  // namespace dcp::server

#endif  // SERVER_TLS_FILES_H_
