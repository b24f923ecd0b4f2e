// SPDX-License-Identifier: Apache-2.0
#include "server/access/root_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/posix_error.h"
#include "server/process/log_text.h"

namespace dcp::server {
namespace {

// Opens the directory and reads the first entries, because some file systems
// open a directory that they cannot read.
absl::Status Read(const std::string& path) {
  DIR* const directory = opendir(path.c_str());
  if (directory == nullptr) return PosixError(errno, path);
  const absl::Cleanup close_it = [directory] { closedir(directory); };
  errno = 0;
  if (readdir(directory) == nullptr && errno != 0) {
    return PosixError(errno, path);
  }
  return absl::OkStatus();
}

absl::Status MayAccess(const std::string& path, int mode) {
  if (faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0) {
    return absl::OkStatus();
  }
  return PosixError(errno, path);
}

absl::Status CheckReadable(const std::string& path, bool was_mounted) {
  DCP_RETURN_IF_ERROR(Read(path));
  DCP_RETURN_IF_ERROR(MayAccess(path, R_OK | X_OK));
  if (!was_mounted || IsMountPoint(path)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      path, ": the file system that was mounted here is gone: mount it again"));
}

}  // namespace

bool IsMountPoint(const std::string& path) {
  struct stat inner = {};
  struct stat outer = {};
  return stat(path.c_str(), &inner) == 0 &&
         stat(absl::StrCat(path, "/..").c_str(), &outer) == 0 &&
         inner.st_dev != outer.st_dev;
}

RootCondition LookAtRoot(const Root& root, bool was_mounted) {
  RootCondition condition;
  condition.readable = CheckReadable(root.real_path, was_mounted);
  condition.usable = condition.readable;
  if (!condition.readable.ok()) return condition;
  if (root.writable) condition.usable = MayAccess(root.real_path, W_OK);
  struct statvfs disk = {};
  if (statvfs(root.real_path.c_str(), &disk) == 0) {
    condition.free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  }
  return condition;
}

std::vector<WatchedRoot> DirectoryRoots(const Client& server) {
  std::vector<WatchedRoot> watched;
  size_t number = 0;
  for (const Root& root : server.roots()) {
    ++number;
    if (IsObjectUrl(root.path)) continue;
    const bool was_mounted = IsMountPoint(root.real_path);
    watched.push_back(
        {.number = number, .name = root.path, .look = [root, was_mounted] {
           return LookAtRoot(root, was_mounted);
         }});
  }
  return watched;
}

absl::StatusOr<std::unique_ptr<RootWatch>> RootWatch::Start(
    std::vector<WatchedRoot> roots, const Times& times, Changed changed) {
  std::unique_ptr<RootWatch> watch = absl::WrapUnique(
      new RootWatch(std::move(roots), times, std::move(changed)));
  DCP_RETURN_IF_ERROR(watch->StartThreads());
  return watch;
}

RootWatch::RootWatch(std::vector<WatchedRoot> roots, const Times& times,
                     Changed changed)
    : roots_(std::move(roots)),
      times_(times),
      changed_(std::move(changed)),
      states_(roots_.size()) {}

absl::Status RootWatch::StartThreads() {
  for (size_t i = 0; i < roots_.size(); ++i) {
    DCP_ASSIGN_OR_RETURN(Thread looker, Thread::Start([this, i] { Look(i); }));
    lookers_.push_back(std::move(looker));
  }
  DCP_ASSIGN_OR_RETURN(teller_, Thread::Start([this] { ReportNews(); }));
  return absl::OkStatus();
}

RootWatch::~RootWatch() {
  Stop();
  lookers_.clear();  // joins
}

void RootWatch::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    ends_.SignalAll();
    news_.SignalAll();
  }
  teller_.reset();  // joins
}

RootCondition RootWatch::Condition(size_t index) const {
  absl::MutexLock lock(&mutex_);
  return ConditionAt(index, SteadyNow());
}

RootCondition RootWatch::ConditionAt(size_t index, absl::Duration now) const {
  const State& state = states_[index];
  if (!state.looks_since.has_value() ||
      now - *state.looks_since < times_.timeout) {
    return state.last;
  }
  const absl::Status hangs = absl::UnavailableError(absl::StrCat(
      roots_[index].name, ": the file system has not answered for ",
      absl::FormatDuration(times_.timeout),
      ": check that it is mounted and that the server runs"));
  return {.readable = hangs, .usable = hangs, .free_bytes = std::nullopt};
}

void RootWatch::Look(size_t index) {
  absl::MutexLock lock(&mutex_);
  State& state = states_[index];
  while (!ending_) {
    state.looks_since = SteadyNow();
    news_.Signal();
    mutex_.Unlock();
    RootCondition now = roots_[index].look();
    mutex_.Lock();
    state.last = std::move(now);
    state.looks_since = std::nullopt;
    news_.Signal();
    const absl::Duration end = SteadyNow() + times_.interval;
    while (!ending_ && !ends_.WaitUntil(&mutex_, end)) {
    }
  }
}

size_t RootWatch::TakeNews(absl::Duration now) {
  for (size_t i = 0; i < roots_.size(); ++i) {
    State& state = states_[i];
    const RootCondition condition = ConditionAt(i, now);
    if (condition.readable.ok() == state.was_readable &&
        condition.usable.ok() == state.was_usable) {
      continue;
    }
    state.was_readable = condition.readable.ok();
    state.was_usable = condition.usable.ok();
    return i;
  }
  return roots_.size();
}

absl::Duration RootWatch::NextTimeout(absl::Duration now) const {
  absl::Duration next = absl::InfiniteDuration();
  for (const State& state : states_) {
    if (!state.looks_since.has_value()) continue;
    const absl::Duration end = *state.looks_since + times_.timeout;
    if (end > now) next = std::min(next, end);
  }
  return next;
}

void RootWatch::ReportNews() {
  absl::MutexLock lock(&mutex_);
  while (!ending_) {
    const absl::Duration now = SteadyNow();
    const size_t index = TakeNews(now);
    if (index == roots_.size()) {
      news_.WaitUntil(&mutex_, NextTimeout(now));
      continue;
    }
    const WatchedRoot& root = roots_[index];
    const RootCondition condition = ConditionAt(index, now);
    mutex_.Unlock();
    if (condition.usable.ok()) {
      DCP_LOG(kInfo) << "event=root_up root=" << LogText(root.name);
    } else {
      DCP_LOG(kError) << "event=root_down root=" << LogText(root.name)
                      << " error=" << LogText(condition.usable.message());
    }
    changed_(root, condition);
    mutex_.Lock();
  }
}

std::vector<std::shared_ptr<void>> AddRootGauges(const RootWatch& watch,
                                                 Metrics& metrics) {
  std::vector<std::shared_ptr<void>> handles;
  handles.push_back(metrics.AddGauges(
      "tessera_root_up",
      "1 if the root can be read and, unless it is read-only, written; 0 if "
      "not, or if the file system does not answer.",
      "root", [&watch] {
        std::vector<LabeledValue> values;
        for (size_t i = 0; i < watch.roots().size(); ++i) {
          values.push_back(
              {.label = watch.roots()[i].name,
               .value = watch.Condition(i).usable.ok() ? 1.0 : 0.0});
        }
        return values;
      }));
  handles.push_back(metrics.AddGauges(
      "tessera_root_free_bytes",
      "Free bytes of the disk of a root, if it answers.", "root", [&watch] {
        std::vector<LabeledValue> values;
        for (size_t i = 0; i < watch.roots().size(); ++i) {
          const RootCondition condition = watch.Condition(i);
          if (!condition.free_bytes.has_value()) continue;
          values.push_back(
              {.label = watch.roots()[i].name,
               .value = static_cast<double>(*condition.free_bytes)});
        }
        return values;
      }));
  return handles;
}

}  // namespace dcp::server
