// SPDX-License-Identifier: Apache-2.0
// StreamTime: a stream's position on the simulated clock. Written only by the
// stream's thread; read when the stream is finished.
#ifndef TESTS_TESTING_SIM_DEVICE_STREAM_TIME_H_
#define TESTS_TESTING_SIM_DEVICE_STREAM_TIME_H_

#include <map>
#include <string>

namespace sim {

class StreamTime {
 public:
  double now_us() const { return now_us_; }
  double busy_us() const { return busy_us_; }
  // How long the stream was idle, by cause.
  const std::map<std::string, double>& idle_us() const { return idle_us_; }
  // The last piece of work.
  const std::string& last() const { return last_; }

  // Nothing happens before `time_us`.
  void WaitUntil(double time_us, const std::string& cause) {
    if (time_us <= now_us_) return;
    idle_us_[cause] += time_us - now_us_;
    now_us_ = time_us;
  }
  void Work(const std::string& name, double until_us) {
    busy_us_ += until_us - now_us_;
    now_us_ = until_us;
    last_ = name;
  }

 private:
  double now_us_ = 0;
  double busy_us_ = 0;
  std::map<std::string, double> idle_us_;
  std::string last_ = "nothing";
};

}  // namespace sim

#endif  // TESTS_TESTING_SIM_DEVICE_STREAM_TIME_H_
