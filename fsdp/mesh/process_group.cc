// SPDX-License-Identifier: Apache-2.0
// How the groups are made, the same on every rank:
//   1. One process serves the store, rank 0 or the launcher's agent, and the
//      others connect to it. A job with one process keeps it in memory.
//   2. Groups are numbered in the order of the calls that make them, and group
//      n keeps its keys under "group/n/<backend>/". The ranks need not agree on
//      the number because every rank makes the same calls in the same order.
//   3. Only a group's members make backends for it, one for each device type,
//      in which they find each other through those keys.
//   4. The members wait for each other: a member that continued and dropped the
//      group would close connections that others have not made yet.
#include "fsdp/mesh/process_group.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/backend_registry.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/gloo_backend.h"
#include "fsdp/mesh/launch.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace fsdp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

struct TrainingJob {
  Launch launch;
  std::chrono::milliseconds timeout;
  std::vector<const BackendKind*> backends;
  Store store;
  int64_t num_groups = 0;  // made so far, by any rank
  ProcessGroup world;
  ProcessGroup self;                           // null until it is needed
  std::map<std::string, ProcessGroup> second;  // by the first group's key
};

// Null before init_process_group. Not destroyed with the process, because a
// group with a hanging collective would keep the process from ending.
std::unique_ptr<TrainingJob>& CurrentJob() {
  static auto* const job = new std::unique_ptr<TrainingJob>();
  return *job;
}

TrainingJob& RequireJob(const char* what) {
  TORCH_CHECK(is_initialized(), what,
              ": the default process group does not exist; call "
              "init_process_group first");
  return *CurrentJob();
}

const BackendKind* RequireBackend(const std::string& name) {
  const BackendKind* kind = FindBackend(name);
  TORCH_CHECK_VALUE(kind != nullptr, "the backend \"", name,
                    "\" is not in this program; link //fsdp:nccl for nccl");
  TORCH_CHECK_VALUE(kind->is_available(), "the backend \"", name,
                    "\" finds no device on this machine");
  return kind;
}

// One backend for each device type.
std::vector<const BackendKind*> ParseBackends(const std::string& text) {
  std::vector<const BackendKind*> kinds;
  if (text.empty()) {
    for (const BackendKind* kind : RegisteredBackends()) {
      if (kind->is_available()) kinds.push_back(kind);
    }
    return kinds;
  }
  std::set<c10::DeviceType> device_types;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> words = absl::StrSplit(part, ':');
    const BackendKind* kind = RequireBackend(words.back());
    const std::string device =
        c10::DeviceTypeName(kind->device_type, /*lower_case=*/true);
    TORCH_CHECK_VALUE(
        words.size() == 1 || (words.size() == 2 && words[0] == device),
        "backend \"", text, "\": ", kind->name, " is for ", device,
        ", as in \"cpu:gloo,cuda:nccl\"");
    TORCH_CHECK_VALUE(device_types.insert(kind->device_type).second,
                      "backend \"", text, "\" names ", device, " twice");
    kinds.push_back(kind);
  }
  return kinds;
}

Store OpenStore(const Launch& launch, std::chrono::milliseconds timeout) {
  if (launch.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = launch.master_port;
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.numWorkers = static_cast<size_t>(launch.world_size);
  options.timeout = timeout;
  options.multiTenant = true;
  Store store;
  WithContext(
      [&] {
        return absl::StrCat(
            "rank ", launch.rank, " of ", launch.world_size,
            options.isServer ? " cannot serve the job's store at "
                             : " cannot reach the job's store at ",
            launch.master_addr, ":", launch.master_port,
            " (MASTER_ADDR:MASTER_PORT), or others did not come in ",
            timeout.count(), " ms");
      },
      [&] {
        store =
            c10::make_intrusive<c10d::TCPStore>(launch.master_addr, options);
      });
  return c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("restart/", launch.restart_count), std::move(store));
}

// Step 4 in the head comment.
void WaitForMembers(c10d::Store& store, int size) {
  const std::string all = "all_connected";
  if (store.add("num_connected", 1) == size) {
    store.set(all, std::vector<uint8_t>{1});
  }
  store.wait({all});
}

// Steps 3 and 4 in the head comment. Null on ranks that are not members.
ProcessGroup MakeGroup(TrainingJob& job, const std::string& key,
                       const std::vector<int64_t>& ranks,
                       const std::string& name) {
  const auto self = std::find(ranks.begin(), ranks.end(), job.launch.rank);
  if (self == ranks.end()) return nullptr;
  const int rank = static_cast<int>(self - ranks.begin());
  const int size = static_cast<int>(ranks.size());
  Store store = c10::make_intrusive<c10d::PrefixStore>(key, job.store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setGroupDesc(name);
  for (const BackendKind* kind : job.backends) {
    c10::intrusive_ptr<c10d::Backend> backend;
    WithContext(
        [&] {
          return absl::StrCat(describe(*group), ": ranks ",
                              absl::StrJoin(ranks, ", "),
                              " could not be connected with ", kind->name);
        },
        [&] {
          const auto own =
              c10::make_intrusive<c10d::PrefixStore>(kind->name, store);
          backend = kind->make(
              {.store = own,
               .rank = rank,
               .size = size,
               .name = key,
               .ranks = std::vector<uint64_t>(ranks.begin(), ranks.end()),
               .timeout = job.timeout,
               .local_rank = job.launch.local_rank});
          WaitForMembers(*own, size);
        });
    group->setBackend(kind->device_type, kind->type, backend);
    group->setDefaultBackend(kind->type);
  }
  group->setGroupName(key);
  group->setGroupDesc(name);
  return group;
}

// The same for the next group that every rank makes.
ProcessGroup MakeNextGroup(TrainingJob& job, const std::vector<int64_t>& ranks,
                           const std::string& name) {
  return MakeGroup(job, absl::StrCat("group/", job.num_groups++), ranks, name);
}

void CheckRanks(const TrainingJob& job, const std::vector<int64_t>& ranks,
                const std::string& name, std::set<int64_t>* seen) {
  TORCH_CHECK_VALUE(!ranks.empty(), "group \"", name, "\" has no ranks");
  for (const int64_t rank : ranks) {
    TORCH_CHECK_VALUE(0 <= rank && rank < job.launch.world_size, "group \"",
                      name, "\" has rank ", rank, ", but the world has ",
                      job.launch.world_size, " ranks");
    TORCH_CHECK_VALUE(seen->insert(rank).second, "group \"", name,
                      "\" has rank ", rank, " twice");
  }
}

// A handler and not SIG_IGN, which programs that this one starts would inherit.
// Gloo writes from several threads, its own and the caller's, so masking the
// signal in one thread would not be enough.
void SurviveBrokenPipes() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  const bool is_default =
      (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL;
  if (!is_default) return;
  struct sigaction nothing = {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &nothing, nullptr);
}

}  // namespace

void init_process_group(const InitProcessGroupOptions& options) {
  TORCH_CHECK(!is_initialized(),
              "init_process_group: the default process group exists "
              "already; call destroy_process_group first");
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "timeout of ",
                    options.timeout.count(), " ms is not positive");
  if (FindBackend("gloo") == nullptr) RegisterBackend(GlooBackend());
  SurviveBrokenPipes();
  auto job = std::make_unique<TrainingJob>();
  job->launch = ReadLaunch(GetEnvironment);
  job->timeout = options.timeout;
  job->backends = ParseBackends(options.backend);
  OpenGlooDevices(job->launch);
  job->store = OpenStore(job->launch, options.timeout);
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < job->launch.world_size; ++r) ranks.push_back(r);
  job->world = MakeNextGroup(*job, ranks, "world");
  CurrentJob() = std::move(job);
}

bool is_initialized() { return CurrentJob() != nullptr; }

void destroy_process_group() {
  if (!is_initialized()) return;
  CurrentJob()->world->shutdown();
  CurrentJob().reset();
  CloseGlooDevices();
}

int64_t get_rank() { return is_initialized() ? CurrentJob()->launch.rank : 0; }

int64_t get_world_size() {
  return is_initialized() ? CurrentJob()->launch.world_size : 1;
}

int64_t get_local_rank() {
  return is_initialized() ? CurrentJob()->launch.local_rank : 0;
}

ProcessGroup world_group() { return RequireJob("world_group").world; }

c10::intrusive_ptr<c10d::Store> job_store() {
  return RequireJob("job_store").store;
}

ProcessGroup new_group(const std::vector<int64_t>& ranks,
                       const std::string& name) {
  TrainingJob& job = RequireJob("new_group");
  std::set<int64_t> seen;
  CheckRanks(job, ranks, name, &seen);
  return MakeNextGroup(job, ranks, name);
}

ProcessGroup self_group() {
  TrainingJob& job = RequireJob("self_group");
  if (!job.self) {
    job.self = MakeGroup(job, absl::StrCat("self/", job.launch.rank),
                         {job.launch.rank}, "self");
  }
  return job.self;
}

ProcessGroup second_group(const ProcessGroup& group) {
  TrainingJob& job = RequireJob("second_group");
  ProcessGroup& second = job.second[key_of(group)];
  if (!second) {
    second = MakeGroup(job, absl::StrCat("second/", key_of(group)),
                       get_process_group_ranks(group), group->getGroupDesc());
  }
  return second;
}

ProcessGroup new_subgroups(const std::vector<std::vector<int64_t>>& ranks,
                           const std::string& name) {
  TrainingJob& job = RequireJob("new_subgroups");
  std::set<int64_t> seen;
  for (const std::vector<int64_t>& members : ranks) {
    CheckRanks(job, members, name, &seen);
  }
  ProcessGroup own;
  for (const std::vector<int64_t>& members : ranks) {
    ProcessGroup group = MakeNextGroup(job, members, name);
    if (group) own = std::move(group);
  }
  return own;
}

std::vector<int64_t> get_process_group_ranks(const ProcessGroup& group) {
  TORCH_CHECK_VALUE(group, "this rank is not a member of the group");
  std::vector<int64_t> ranks;
  for (const c10::Device device : group->getDeviceTypes()) {
    if (!ranks.empty()) break;
    const std::vector<uint64_t>& global = group->getBackend(device.type())
                                              ->getBackendOptions()
                                              ->global_ranks_in_group;
    ranks.assign(global.begin(), global.end());
  }
  if (!ranks.empty()) return ranks;
  TORCH_CHECK_VALUE(group->getSize() == get_world_size(), describe(*group),
                    " does not say which ranks of the world it has; make it "
                    "with new_group");
  for (int64_t r = 0; r < group->getSize(); ++r) ranks.push_back(r);
  return ranks;
}

std::string key_of(const ProcessGroup& group) {
  return absl::StrCat(group->getGroupName(), ".",
                      get_process_group_ranks(group).front());
}

}  // namespace fsdp
