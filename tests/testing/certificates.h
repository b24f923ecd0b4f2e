// SPDX-License-Identifier: Apache-2.0
// Certificates: an authority and the certificates that it signs, in files, new
// for each test. Valid for an hour. One thread; a refusal from OpenSSL is a
// DCP_CHECK.

#ifndef TESTS_TESTING_CERTIFICATES_H_
#define TESTS_TESTING_CERTIFICATES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tests/testing/temp_dir.h"

namespace dcp::testing {

// PEM files.
struct CertificateFiles {
  std::string cert;
  std::string key;
};

class Authority {
 public:
  // The certificate is `name`.pem in `dir`, which must outlive the authority.
  Authority(const TempDir& dir, absl::string_view name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  const std::string& cert() const { return cert_; }

  // For the machine "localhost", 127.0.0.1 and ::1, in `name`.pem, `name`.key.
  CertificateFiles Sign(absl::string_view name);

 private:
  struct Keys;

  const TempDir& dir_;
  const std::string name_;
  std::string cert_;
  Keys* keys_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_CERTIFICATES_H_
