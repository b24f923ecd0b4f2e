// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_table.h"

#include <algorithm>

#include "dcp/base/status.h"
#include "server/jobs/job.h"
#include "server/jobs/job_operation.h"

namespace dcp::server {
namespace {

bool MaySee(const Client& client, const Job& job) {
  return client.is_admin() || job.client == client.name();
}

}  // namespace

void JobTable::Insert(const JobEntryPtr& entry) {
  const Job& job = entry->job;
  entries_[job.number] = entry;
  by_id_[job.id] = job.number;
  if (!job.request.request_id.empty()) {
    by_request_id_[{job.client, job.request.request_id}] = job.number;
  }
  if (HasEnded(job.state)) {
    entry->stage = JobStage::kEnded;
    ended_.emplace(job.end_time, job.number);
    ++num_ended_[job.client];
    return;
  }
  ++num_live_[job.client];
  if (!job.request.destination.empty()) {
    by_destination_[job.request.destination] = job.number;
  }
}

void JobTable::End(JobEntry& entry) {
  const Job& job = entry.job;
  entry.stage = JobStage::kEnded;
  ended_.emplace(job.end_time, job.number);
  ++num_ended_[job.client];
  if (--num_live_[job.client] == 0) num_live_.erase(job.client);
  by_destination_.erase(job.request.destination);
}

void JobTable::Forget(const JobEntry& entry) {
  const Job& job = entry.job;
  if (ended_.erase({job.end_time, job.number}) == 0) return;
  if (--num_ended_[job.client] == 0) num_ended_.erase(job.client);
  by_id_.erase(job.id);
  const auto same = by_request_id_.find({job.client, job.request.request_id});
  if (same != by_request_id_.end() && same->second == job.number) {
    by_request_id_.erase(same);
  }
  entries_.erase(job.number);
}

absl::StatusOr<JobEntryPtr> JobTable::Find(const Client& client,
                                           absl::string_view name) const {
  DCP_ASSIGN_OR_RETURN(const std::string id, JobIdFromName(name));
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return NoSuchJob(name);
  const JobEntryPtr& entry = entries_.at(found->second);
  if (!MaySee(client, entry->job)) return NoSuchJob(name);
  return entry;
}

JobEntryPtr JobTable::FindRequest(const std::string& client,
                                  const std::string& request_id) const {
  const auto known = by_request_id_.find({client, request_id});
  return known == by_request_id_.end() ? nullptr : entries_.at(known->second);
}

JobEntryPtr JobTable::FindWriter(const std::string& destination) const {
  const auto writer = by_destination_.find(destination);
  return writer == by_destination_.end() ? nullptr
                                         : entries_.at(writer->second);
}

int64_t JobTable::num_live(const std::string& client) const {
  const auto live = num_live_.find(client);
  return live == num_live_.end() ? 0 : live->second;
}

JobEntryPtr JobTable::NextToForget(absl::Time oldest, int64_t max_ended) const {
  if (ended_.empty()) return nullptr;
  const auto first = ended_.begin();
  if (first->first < oldest) return entries_.at(first->second);
  if (ended_.size() <= static_cast<size_t>(max_ended)) return nullptr;
  const auto most = std::max_element(
      num_ended_.begin(), num_ended_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [time, number] : ended_) {
    const JobEntryPtr& entry = entries_.at(number);
    if (entry->job.client == most->first) return entry;
  }
  return nullptr;
}

std::vector<JobEntryPtr> JobTable::Waiting() const {
  std::vector<JobEntryPtr> waiting;
  for (const auto& [number, entry] : entries_) {
    if (entry->stage == JobStage::kAdmitting ||
        entry->stage == JobStage::kReady) {
      waiting.push_back(entry);
    }
  }
  return waiting;
}

absl::Time JobTable::OldestWaiting() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [number, entry] : entries_) {
    if (entry->job.state == JobMetadata::PENDING) {
      oldest = std::min(oldest, entry->job.create_time);
    }
  }
  return oldest;
}

bool JobTable::IsAnyAdmitting() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second->stage == JobStage::kAdmitting;
  });
}

std::vector<JobEntryPtr> JobTable::Choose(const Client& client,
                                          const JobFilter& filter,
                                          int64_t after, size_t most) const {
  std::vector<JobEntryPtr> found;
  while (true) {
    absl::MutexLock lock(&mutex_);
    auto it = entries_.upper_bound(after);
    for (size_t i = 0; i < kJobsPerLook && it != entries_.end(); ++i, ++it) {
      after = it->first;
      const Job& job = it->second->job;
      if (!MaySee(client, job) || !filter.Matches(job)) continue;
      found.push_back(it->second);
      if (found.size() == most) return found;
    }
    if (it == entries_.end()) return found;
  }
}

}  // namespace dcp::server
