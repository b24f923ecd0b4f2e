// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/simulation.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c10/util/Backtrace.h"
#include "tests/testing/sim_device/cost_model.h"
#include "tests/testing/sim_device/delay.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/sim_device.h"
#include "tests/testing/sim_device/stream.h"

namespace sim {
namespace {

// Streams for each priority in a device's pool, as in CUDA.
constexpr uint64_t kPoolStreams = 32;

thread_local c10::DeviceIndex current_device = 0;
thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;

c10::Stream MakeStream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

// The name that CUDA would show.
std::string DefaultName(c10::Stream stream) {
  const std::string device =
      stream.device_index() == 0
          ? ""
          : absl::StrCat(" of device ", stream.device_index());
  if (stream.id() == 0) return absl::StrCat("default", device);
  return absl::StrCat("stream ", stream.id(), device);
}

}  // namespace

c10::DeviceIndex CurrentDevice() { return current_device; }

void SetCurrentDevice(c10::DeviceIndex device) { current_device = device; }

c10::Stream CurrentStream(c10::DeviceIndex device) {
  const auto found = current_streams.find(device);
  return MakeStream(device, found == current_streams.end() ? 0 : found->second);
}

void SetCurrentStream(c10::Stream stream) {
  current_streams[stream.device_index()] = stream.id();
}

c10::Stream DefaultStream(c10::DeviceIndex device) {
  return MakeStream(device, 0);
}

Simulation& Simulation::Get() {
  static auto* const simulation = new Simulation;
  return *simulation;
}

Simulation::Stream& Simulation::At(c10::Stream stream) {
  std::unique_ptr<Stream>& found =
      streams_[{stream.device_index(), stream.id()}];
  if (!found) {
    const std::string name = DefaultName(stream);
    const size_t actor = races_.AddActor(name);
    const uint64_t seed = options().seed * 1000003 + actor +
                          7919 * static_cast<uint64_t>(getpid());
    found = std::make_unique<Stream>(stream, actor, name, seed);
    actors_.push_back(found.get());
    if (!is_watched_ && options().watchdog_s > 0) {
      is_watched_ = true;
      std::thread([this] { Watch(); }).detach();
    }
  }
  return *found;
}

uint64_t Simulation::IssueHere(Stream& stream, const std::string& name,
                               const std::vector<Access>& accesses,
                               std::function<void()> work) {
  host_.Tick(RaceDetector::kHost);
  stream.clock.Join(host_);
  const Work issued{.name = name,
                    .stack = options().stacks && !accesses.empty()
                                 ? c10::get_backtrace(/*frames_to_skip=*/4, 30)
                                 : "",
                    .actor = stream.actor,
                    .tick = stream.clock.Tick(stream.actor)};
  for (const Access& access : accesses) {
    races_.Check(access, issued, stream.clock, host_);
  }
  return stream.queue.Push(name, std::move(work));
}

// Work that only takes time.
std::function<void()> Simulation::Timed(Stream& stream, const std::string& name,
                                        double micros) {
  host_us_ += kIssueMicros;
  return [&stream, name, micros, issued_us = host_us_] {
    stream.time.WaitUntil(issued_us, "the host");
    stream.time.Work(name, stream.time.now_us() + micros);
  };
}

void Simulation::Issue(c10::Stream id, const std::string& name,
                       const std::vector<Access>& accesses,
                       std::function<void()> work, double micros) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  IssueHere(stream, name, accesses,
            options().clock ? Timed(stream, name, micros) : std::move(work));
}

void Simulation::IssueTimed(c10::Stream id, const std::string& name,
                            const std::vector<Access>& accesses,
                            std::function<Period(double now_us)> run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  host_us_ += kIssueMicros;
  IssueHere(stream, name, accesses,
            [&stream, name, run = std::move(run), issued_us = host_us_] {
              stream.time.WaitUntil(issued_us, "the host");
              const Period period = run(stream.time.now_us());
              stream.time.WaitUntil(period.begin_us, "other ranks");
              stream.time.Work(name, period.end_us);
            });
}

void Simulation::HostWaitedFor(const Stream& stream, const VectorClock& clock,
                               const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_.Join(clock);
  host_us_ = std::max(host_us_, stream.time.now_us());
  ++host_waits_[reason];
}

void Simulation::Synchronize(c10::Stream id, const std::string& reason) {
  std::unique_lock<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  const VectorClock clock = stream.clock;
  const uint64_t position = stream.queue.num_issued();
  lock.unlock();
  stream.queue.WaitUntilDone(position);
  HostWaitedFor(stream, clock, reason);
}

void Simulation::Finish(c10::Stream id) {
  std::unique_lock<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  lock.unlock();
  stream.queue.WaitUntilDone(stream.queue.num_issued());
}

void Simulation::Record(Event& event, c10::Stream id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  event.stream = &stream;
  event.reached = std::make_shared<Event::Reached>();
  event.position =
      IssueHere(stream, "an event", {}, [&stream, reached = event.reached] {
        reached->time_us =
            options().clock
                ? stream.time.now_us()
                : std::chrono::duration<double, std::micro>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count();
        reached->after = stream.time.last();
      });
  event.clock = stream.clock;
}

void Simulation::MakeWait(c10::Stream waiter, const Event& event) {
  if (event.stream == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(waiter);
  stream.clock.Join(event.clock);
  if (&stream == event.stream) return;
  stream.queue.Push(absl::StrCat("a wait for '", event.stream->name, "'"),
                    [&stream, on = event.stream, position = event.position,
                     reached = event.reached] {
                      on->queue.WaitUntilDone(position);
                      if (!options().clock) return;
                      stream.time.WaitUntil(reached->time_us, reached->after);
                    });
}

bool Simulation::Query(const Event& event) {
  if (event.stream == nullptr) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!event.stream->queue.IsDone(event.position)) return false;
  host_.Join(event.clock);
  return true;
}

void Simulation::Synchronize(const Event& event) {
  if (event.stream == nullptr) return;
  event.stream->queue.WaitUntilDone(event.position);
  HostWaitedFor(*event.stream, event.clock, "an event");
}

bool Simulation::Query(c10::Stream id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  if (!stream.queue.IsDone(stream.queue.num_issued())) return false;
  host_.Join(stream.clock);
  return true;
}

std::vector<c10::Stream> Simulation::StreamsOn(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<c10::Stream> found;
  for (const auto& [key, stream] : streams_) {
    if (key.first == device) found.push_back(stream->id);
  }
  return found;
}

c10::Stream Simulation::StreamFromPool(c10::DeviceIndex device,
                                       bool high_priority) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t index = next_in_pool_[high_priority ? 1 : 0]++ % kPoolStreams;
  return MakeStream(
      device, static_cast<c10::StreamId>(1 + index +
                                         (high_priority ? 0 : kPoolStreams)));
}

void Simulation::Name(c10::Stream id, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = At(id);
  stream.name = name;
  races_.RenameActor(stream.actor, name);
}

std::vector<std::string> Simulation::TakeRaces() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return races_.TakeRaces();
}

std::map<std::string, int64_t> Simulation::TakeHostWaits() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(host_waits_, {});
}

std::map<std::string, int64_t> Simulation::TakeEagerOperators() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(eager_operators_, {});
}

void Simulation::CountHostWait(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++host_waits_[reason];
}

void Simulation::CountEager(const std::string& op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++eager_operators_[op];
}

std::string Simulation::DescribeTime(c10::DeviceIndex device) {
  Finish(DefaultStream(device));
  const std::lock_guard<std::mutex> lock(mutex_);
  const Stream& stream = At(DefaultStream(device));
  std::vector<std::string> idle;
  for (const auto& [cause, micros] : stream.time.idle_us()) {
    idle.push_back(absl::StrFormat("\"%s\": %.1f", cause, micros));
  }
  return absl::StrFormat(
      "{\"now_us\": %.1f, \"busy_us\": %.1f, \"peak_bytes\": %d, "
      "\"idle_us\": {%s}}",
      stream.time.now_us(), stream.time.busy_us(),
      memory_[device].pool.stats().peak, absl::StrJoin(idle, ", "));
}

std::string Simulation::Describe() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const auto& [key, stream] : streams_) {
    const std::string work = stream->queue.Describe();
    if (work.empty()) continue;
    absl::StrAppend(&text, "  '", stream->name, "': ", work, "\n");
  }
  return text;
}

// Ends a process when a stream is stuck. Every rank has a watchdog, so all
// ranks print the work that they wait for.
void Simulation::Watch() {
  const std::chrono::seconds most(options().watchdog_s);
  while (true) {
    Delay(std::chrono::milliseconds(500));
    std::chrono::seconds oldest(0);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& [key, stream] : streams_) {
        oldest = std::max(oldest, stream->queue.Age());
      }
    }
    if (oldest < most) continue;
    const char* rank = std::getenv("RANK");
    std::fprintf(
        stderr,
        "The simulated device hangs: rank %s has done nothing for %lld "
        "s (SIM_WATCHDOG_S). Its streams:\n%s",
        rank == nullptr ? "0" : rank, static_cast<long long>(oldest.count()),
        Describe().c_str());
    std::fflush(stderr);
    // Gives the other ranks time to print the same before a launcher ends them.
    Delay(std::chrono::seconds(2));
    _exit(134);
  }
}

std::vector<std::string> TakeRaces() { return Simulation::Get().TakeRaces(); }

std::map<std::string, int64_t> TakeHostWaits() {
  return Simulation::Get().TakeHostWaits();
}

std::map<std::string, int64_t> TakeEagerOperators() {
  return Simulation::Get().TakeEagerOperators();
}

MemoryStats memory_stats(c10::DeviceIndex device) {
  return Simulation::Get().memory_stats(device);
}

void ResetPeakMemory(c10::DeviceIndex device) {
  Simulation::Get().ResetPeak(device);
}

void NameStream(c10::Stream stream, const std::string& name) {
  Simulation::Get().Name(stream, name);
}

c10::Stream NewStream(c10::DeviceIndex device) {
  return Simulation::Get().StreamFromPool(device, /*high_priority=*/true);
}

void WaitFor(c10::Stream waiter, c10::Stream on) {
  Simulation::Event event;
  Simulation::Get().Record(event, on);
  Simulation::Get().MakeWait(waiter, event);
}

void Finish(c10::DeviceIndex device) {
  Simulation& simulation = Simulation::Get();
  for (const c10::Stream stream : simulation.StreamsOn(device)) {
    simulation.Finish(stream);
  }
}

}  // namespace sim
