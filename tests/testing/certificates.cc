// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

constexpr long kHourSeconds = 60 * 60;

EVP_PKEY* NewKey() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  DCP_CHECK(key != nullptr, "no key");
  return key;
}

void AddExtension(X509* cert, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, cert, cert, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, id, value);
  DCP_CHECK(extension != nullptr, value);
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

// Signed by `issuer_key`; the issuer's certificate has the name `issuer`.
X509* NewCertificate(const std::string& name, EVP_PKEY* key,
                     const std::string& issuer, EVP_PKEY* issuer_key) {
  static long serial = 1;
  X509* const cert = X509_new();
  X509_set_version(cert, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
  X509_gmtime_adj(X509_getm_notBefore(cert), -kHourSeconds);
  X509_gmtime_adj(X509_getm_notAfter(cert), kHourSeconds);
  X509_set_pubkey(cert, key);
  const auto set_name = [](X509_NAME* field, const std::string& text) {
    X509_NAME_add_entry_by_txt(
        field, "CN", MBSTRING_ASC,
        reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
  };
  set_name(X509_get_subject_name(cert), name);
  X509_NAME* const issuer_name = X509_NAME_new();
  set_name(issuer_name, issuer);
  X509_set_issuer_name(cert, issuer_name);
  X509_NAME_free(issuer_name);
  if (name == issuer) {
    AddExtension(cert, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(cert, NID_key_usage, "critical,keyCertSign");
  } else {
    AddExtension(cert, NID_subject_alt_name,
                 "DNS:localhost,IP:127.0.0.1,IP:::1");
  }
  DCP_CHECK(X509_sign(cert, issuer_key, EVP_sha256()) > 0, "not signed");
  return cert;
}

std::string Text(BIO* bio) {
  char* data;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string ToPem(X509* cert) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, cert);
  return Text(bio);
}

std::string ToPem(EVP_PKEY* key) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio);
}

}  // namespace

struct Authority::Keys {
  EVP_PKEY* key;
};

Authority::Authority(const TempDir& dir, absl::string_view name)
    : dir_(dir), name_(name), keys_(new Keys{NewKey()}) {
  X509* const cert = NewCertificate(name_, keys_->key, name_, keys_->key);
  cert_ = dir_.WriteFile(absl::StrCat(name, ".pem"), ToPem(cert));
  X509_free(cert);
}

Authority::~Authority() {
  EVP_PKEY_free(keys_->key);
  delete keys_;
}

CertificateFiles Authority::Sign(absl::string_view name) {
  EVP_PKEY* const key = NewKey();
  X509* const cert = NewCertificate(std::string(name), key, name_, keys_->key);
  CertificateFiles files{
      .cert = dir_.WriteFile(absl::StrCat(name, ".pem"), ToPem(cert)),
      .key = dir_.WriteFile(absl::StrCat(name, ".key"), ToPem(key))};
  X509_free(cert);
  EVP_PKEY_free(key);
  return files;
}

}  // namespace dcp::testing
