// SPDX-License-Identifier: Apache-2.0
// ObjectServer: Ceph's gateway, a real S3 server, on loopback. It lives as long
// as the test program. radosgw.sh starts and ends it. A start takes some 15
// seconds, so a test program has only one.
#ifndef TESTS_TESTING_OBJECT_SERVER_H_
#define TESTS_TESTING_OBJECT_SERVER_H_

#include <string>

#include "tests/testing/temp_dir.h"

namespace dcp::testing {

class ObjectServer {
 public:
  // Starts it at the first call, and sets the environment so that S3Settings
  // lead to it with the user's rights.
  static ObjectServer& Get();

  ~ObjectServer();
  ObjectServer(const ObjectServer&) = delete;
  ObjectServer& operator=(const ObjectServer&) = delete;

  // "http://127.0.0.1:port".
  const std::string& endpoint() const { return endpoint_; }
  // "https://127.0.0.1:port", and a file with the certificate to trust.
  std::string tls_endpoint() const;
  std::string ca_bundle() const { return dir_.Join("radosgw/ca.pem"); }

  // Kills the gateway, with no time to finish anything, and starts it again.
  // It answers after some seconds.
  void RestartGateway();

  // The server's buckets: one that the user may use, and one that belongs to
  // another user.
  static constexpr char kBucket[] = "tessera";
  static constexpr char kBucketOfStranger[] = "stranger";

 private:
  ObjectServer();

  const TempDir dir_;
  int stdin_ = -1;  // closing it ends the server
  int pid_ = 0;
  std::string endpoint_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_OBJECT_SERVER_H_
