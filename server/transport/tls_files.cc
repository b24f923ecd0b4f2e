// SPDX-License-Identifier: Apache-2.0

#include "server/transport/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/process/problems.h"
#include "server/process/text_file.h"

namespace dcp::server {
namespace {

// How often gRPC checks whether the files have changed.
constexpr unsigned int kWatchSeconds = 1;

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  DCP_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not PEM"));
  }
  return text;
}

// An error with OpenSSL's last message.
absl::Status SslError(absl::string_view path, absl::string_view what) {
  char reason[256];
  ERR_error_string_n(ERR_peek_last_error(), reason, sizeof(reason));
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what, " (", reason, ")"));
}

absl::Status CheckPair(const TlsPaths& paths) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
      SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  SSL_CTX* const ssl = context.get();
  if (SSL_CTX_use_certificate_chain_file(ssl, paths.cert.c_str()) != 1) {
    return SslError(paths.cert, "is not a certificate chain");
  }
  if (SSL_CTX_use_PrivateKey_file(ssl, paths.key.c_str(), SSL_FILETYPE_PEM) !=
      1) {
    return SslError(paths.key, absl::StrCat("is not the key of ", paths.cert));
  }
  if (!paths.client_ca.empty() &&
      SSL_CTX_load_verify_locations(ssl, paths.client_ca.c_str(), nullptr) !=
          1) {
    return SslError(paths.client_ca, "has no certificate");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths) {
  TlsFiles files;
  Problems problems;
  const auto read = [&problems](const std::string& path, std::string& into) {
    absl::StatusOr<std::string> pem = ReadPem(path);
    problems.Add(pem.status());
    if (pem.ok()) into = *std::move(pem);
  };
  read(paths.cert, files.cert);
  read(paths.key, files.key);
  if (!paths.client_ca.empty()) read(paths.client_ca, files.client_ca);
  DCP_RETURN_IF_ERROR(problems.status());
  DCP_RETURN_IF_ERROR(CheckPair(paths));
  return files;
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> cert(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
  std::tm utc{};
  if (cert == nullptr ||
      ASN1_TIME_to_tm(X509_get0_notAfter(cert.get()), &utc) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the certificate has no time of expiry");
  }
  return absl::FromTM(utc, absl::UTCTimeZone());
}

ServerTls::MemoryFile::MemoryFile() : fd_(memfd_create("tls", MFD_CLOEXEC)) {
  DCP_CHECK(fd_ >= 0, std::strerror(errno));
}

ServerTls::MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

std::string ServerTls::MemoryFile::path() const {
  return absl::StrCat("/proc/self/fd/", fd_);
}

void ServerTls::MemoryFile::Write(const std::string& text) const {
  DCP_CHECK(pwrite(fd_, text.data(), text.size(), 0) ==
                    static_cast<ssize_t>(text.size()) &&
                ftruncate(fd_, static_cast<off_t>(text.size())) == 0,
            std::strerror(errno));
}

absl::StatusOr<ServerTls> ServerTls::Load(TlsPaths paths) {
  ServerTls tls(std::move(paths));
  if (tls.paths_.cert.empty()) {
    tls.credentials_ = grpc::InsecureServerCredentials();
    return tls;
  }
  DCP_RETURN_IF_ERROR(tls.Reload());
  const bool mutual = !tls.paths_.client_ca.empty();
  grpc::experimental::TlsServerCredentialsOptions of_grpc(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          tls.key_.path(), tls.cert_.path(),
          mutual ? tls.client_ca_.path() : "", kWatchSeconds));
  of_grpc.watch_identity_key_cert_pairs();
  if (mutual) of_grpc.watch_root_certs();
  of_grpc.set_cert_request_type(
      mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  tls.credentials_ = grpc::experimental::TlsServerCredentials(of_grpc);
  return tls;
}

absl::Status ServerTls::Reload() {
  if (paths_.cert.empty()) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(const TlsFiles files, ReadTlsFiles(paths_));
  DCP_ASSIGN_OR_RETURN(expiry_, CertificateExpiry(files.cert));
  cert_.Write(files.cert);
  key_.Write(files.key);
  client_ca_.Write(files.client_ca);
  return absl::OkStatus();
}

}  // namespace dcp::server
