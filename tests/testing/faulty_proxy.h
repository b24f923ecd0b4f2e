// SPDX-License-Identifier: Apache-2.0
// FaultyProxy: forwards HTTP requests on loopback to a server, one per
// connection, and lets a test answer in the server's place, change the answer,
// or cut it off. A failing system call is a DCP_CHECK.
#ifndef TESTS_TESTING_FAULTY_PROXY_H_
#define TESTS_TESTING_FAULTY_PROXY_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace dcp::testing {

class FaultyProxy {
 public:
  struct Faults {
    // Given a request's head, returns an answer if the server must not be
    // asked.
    std::function<std::optional<std::string>(const std::string& head)> instead;
    // Given a request's head and the server's answer, returns the bytes to
    // send; nothing at all ends the connection.
    std::function<std::string(const std::string& head,
                              const std::string& answer)>
        change;
    // Whether a connection stays open and silent after these bytes, as long as
    // the proxy lives.
    bool stalls = false;
  };

  // `endpoint` is "http://127.0.0.1:PORT". The functions of `faults` are called
  // one at a time.
  FaultyProxy(absl::string_view endpoint, Faults faults);
  ~FaultyProxy();
  FaultyProxy(const FaultyProxy&) = delete;
  FaultyProxy& operator=(const FaultyProxy&) = delete;

  // In the same form as the server's.
  const std::string& endpoint() const { return endpoint_; }

  // An answer with a status such as "503 Slow Down", further lines for its
  // head, each ended, and a body.
  static std::string Answer(absl::string_view status, absl::string_view body,
                            absl::string_view more_head = "");
  // The same with an error in XML, as S3 sends it.
  static std::string Error(absl::string_view status, absl::string_view code);

 private:
  void Run();
  void Serve(int client);

  const Faults faults_;
  const int server_port_;
  const int listener_;
  int wake_[2];  // a pipe: closed to end the threads
  std::string endpoint_;
  absl::Mutex mu_;
  std::vector<std::thread> connections_;  // started by thread_
  std::thread thread_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_FAULTY_PROXY_H_
