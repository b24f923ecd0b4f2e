// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/communicator.h"

#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "tests/testing/sim_device/delay.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"

namespace sim {
namespace {

std::string Key(const std::string& name, int rank) {
  return absl::StrCat("communicator/", name, "/", rank);
}

void WaitForMembers(const std::string& name, c10d::Store& store, int rank,
                    const std::vector<int>& members) {
  if (members.size() == 1) return;
  store.set(Key(name, rank), std::vector<uint8_t>{1});
  std::vector<std::string> keys;
  for (const int member : members) keys.push_back(Key(name, member));
  const std::chrono::seconds most(
      options().watchdog_s > 0 ? options().watchdog_s : 1 << 20);
  const std::string error =
      fsdp::CatchErrorText([&] { store.wait(keys, most); });
  if (error.empty()) return;
  std::vector<int> missing;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!store.check({keys[i]})) missing.push_back(members[i]);
  }
  TORCH_CHECK_WITH(
      DistBackendError, false, "rank ", rank, " uses the communicator '", name,
      "' for the first time and waits for rank ", absl::StrJoin(missing, ", "),
      ", which did not come. Streams:\n", Simulation::Get().Describe());
}

}  // namespace

Communicator::Communicator(const std::string& name, c10d::Store& store,
                           int rank, const std::vector<int>& members,
                           c10::DeviceIndex device)
    : stream_(
          Simulation::Get().StreamFromPool(device, /*high_priority=*/true)) {
  Simulation::Get().Name(stream_, absl::StrCat("nccl ", name));
  WaitForMembers(name, store, rank, members);
}

uint64_t Communicator::TakeTicket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_issued_++;
}

void Communicator::Run(uint64_t ticket,
                       const std::function<void()>& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ == ticket; });
  lock.unlock();
  // An operation that failed is over, too.
  const absl::Cleanup done = [&] {
    lock.lock();
    ++num_done_;
    changed_.notify_all();
  };
  Delay(std::chrono::microseconds(options().collective_us));
  operation();
}

}  // namespace sim
