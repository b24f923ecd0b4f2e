// SPDX-License-Identifier: Apache-2.0
// A TCP port of 127.0.0.1 for a server that cannot choose one itself. It is
// bound, and nothing listens on it, until the object ends. So the kernel gives
// it to no other program, and a server with SO_REUSEADDR can listen on it. Any
// thread.
#ifndef TESTS_TESTING_HELD_PORT_H_
#define TESTS_TESTING_HELD_PORT_H_

namespace dcp::testing {

class HeldPort {
 public:
  HeldPort();
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int number() const { return number_; }

 private:
  int fd_;
  int number_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_HELD_PORT_H_
