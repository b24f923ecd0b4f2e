// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/thread_coordinator.h"

#include <barrier>
#include <string>
#include <thread>
#include <utility>

#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

// Written by the ranks before an exchange, read after it.
struct Table {
  explicit Table(int64_t num_ranks)
      : meeting(num_ranks), values(static_cast<size_t>(num_ranks)) {}

  std::barrier<> meeting;
  std::vector<std::string> values;
};

class ThreadCoordinator final : public Coordinator {
 public:
  ThreadCoordinator(Table& table, size_t rank) : table_(table), rank_(rank) {}

  int64_t rank() const override { return static_cast<int64_t>(rank_); }
  int64_t num_ranks() const override {
    return static_cast<int64_t>(table_.values.size());
  }

  absl::StatusOr<std::vector<std::string>> Gather(std::string value) override {
    table_.values[rank_] = std::move(value);
    table_.meeting.arrive_and_wait();
    std::vector<std::string> all;
    if (rank_ == 0) all = table_.values;
    table_.meeting.arrive_and_wait();
    return all;
  }

  absl::StatusOr<std::string> Scatter(
      std::vector<std::string> values) override {
    if (rank_ == 0) {
      DCP_CHECK(values.size() == table_.values.size());
      table_.values = std::move(values);
    }
    table_.meeting.arrive_and_wait();
    std::string mine = std::move(table_.values[rank_]);
    table_.meeting.arrive_and_wait();
    return mine;
  }

 private:
  Table& table_;
  const size_t rank_;
};

}  // namespace

std::vector<absl::Status> RunRanks(
    int64_t num_ranks,
    absl::FunctionRef<absl::Status(Coordinator& coordinator)> work) {
  Table table(num_ranks);
  std::vector<absl::Status> statuses(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      threads.emplace_back([&, rank] {
        ThreadCoordinator coordinator(table, rank);
        statuses[rank] = work(coordinator);
      });
    }
  }  // joins
  return statuses;
}

}  // namespace dcp::testing
