// SPDX-License-Identifier: Apache-2.0
// Stores objects and uploads in memory, and decides which calls fail.
// Tested by tests/testing/sim_object_server_test.cc.
#include "tests/testing/sim_object_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/sim_object_client.h"

namespace dcp::testing {

SimObjectServer::SimObjectServer(const Options& options)
    : options_(options), random_(options.seed) {}

SimObjectServer::~SimObjectServer() = default;

std::unique_ptr<ObjectStore> SimObjectServer::NewClient() {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<SimObjectClient>(*this, num_clients_++);
}

OpenObjectStore SimObjectServer::Opener() {
  return [this](const ObjectUrl& url)
             -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    if (url.bucket == "bucket") return NewClient();
    return absl::NotFoundError(
        absl::StrCat("s3://", url.bucket, ": there is no such bucket"));
  };
}

uint64_t SimObjectServer::num_calls() const {
  absl::MutexLock lock(&mutex_);
  return num_calls_;
}

uint64_t SimObjectServer::num_mutations() const {
  absl::MutexLock lock(&mutex_);
  return num_mutations_;
}

uint64_t SimObjectServer::num_objects() const {
  absl::MutexLock lock(&mutex_);
  return objects_.size();
}

uint64_t SimObjectServer::num_uploads() const {
  absl::MutexLock lock(&mutex_);
  return uploads_.size();
}

uint64_t SimObjectServer::most_bytes_in_flight() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<uint64_t>(most_bytes_in_flight_);
}

void SimObjectServer::FailCall(uint64_t num_before, absl::Status error,
                               bool happens) {
  absl::MutexLock lock(&mutex_);
  failures_[num_calls_ + num_before] = {std::move(error), happens};
}

void SimObjectServer::KillClientsAfter(uint64_t num_before) {
  absl::MutexLock lock(&mutex_);
  kill_at_ = num_mutations_ + num_before;
}

bool SimObjectServer::clients_died() const {
  absl::MutexLock lock(&mutex_);
  return num_dead_ > 0;
}

void SimObjectServer::Heal() {
  absl::MutexLock lock(&mutex_);
  kill_at_.reset();
  failures_.clear();
  num_dead_ = num_clients_;
}

std::optional<std::string> SimObjectServer::BytesOf(
    absl::string_view key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return std::nullopt;
  return found->second.bytes;
}

std::vector<std::string> SimObjectServer::Keys() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, object] : objects_) keys.push_back(key);
  return keys;
}

void SimObjectServer::PutBytes(absl::string_view key, absl::string_view bytes) {
  absl::MutexLock lock(&mutex_);
  objects_[std::string(key)] = NewObject(bytes);
}

SimObjectServer::Fate SimObjectServer::Begin(uint64_t client, bool mutates) {
  const absl::Status dead =
      absl::UnavailableError("s3://bucket: this client has died");
  if (client < num_dead_) return {dead, false};
  const uint64_t call = num_calls_++;
  if (mutates) {
    const uint64_t mutation = num_mutations_++;
    if (kill_at_.has_value() && mutation >= *kill_at_) {
      num_dead_ = num_clients_;
      return {dead, random_() % 2 == 0};
    }
  }
  const auto failure = failures_.extract(call);
  return failure.empty() ? Fate{} : failure.mapped();
}

SimObjectServer::Object SimObjectServer::NewObject(absl::string_view bytes) {
  const uint64_t number = ++num_made_;
  return {.bytes = std::string(bytes),
          .etag = absl::StrCat("\"", number, "\""),
          .modified_ns = CreationTime(number)};
}

int64_t SimObjectServer::CreationTime(uint64_t number) const {
  return options_.first_ns + static_cast<int64_t>(number) * 1000000000;
}

absl::Status SimObjectServer::CheckCondition(absl::string_view key,
                                             const PutCondition& condition) {
  using Kind = PutCondition::Kind;
  if (!options_.has_conditions || condition.kind == Kind::kAlways) {
    return absl::OkStatus();
  }
  if (options_.refuses_conditions) {
    return absl::UnimplementedError("no conditions here");
  }
  const auto found = objects_.find(key);
  const bool exists = found != objects_.end();
  if (condition.kind == Kind::kIfAbsent && exists) {
    return absl::AlreadyExistsError(
        absl::StrCat("s3://bucket/", key, ": is there already"));
  }
  if (condition.kind == Kind::kIfEtag &&
      (!exists || found->second.etag != condition.etag)) {
    return absl::FailedPreconditionError(
        absl::StrCat("s3://bucket/", key, ": somebody else has replaced it"));
  }
  return absl::OkStatus();
}

absl::Status SimObjectServer::Find(absl::string_view key,
                                   absl::string_view etag, Object** found) {
  const auto it = objects_.find(key);
  if (it == objects_.end()) {
    return absl::NotFoundError(
        absl::StrCat("s3://bucket/", key, ": no such object"));
  }
  if (!etag.empty() && it->second.etag != etag) {
    return absl::FailedPreconditionError(
        absl::StrCat("s3://bucket/", key, " was replaced while it was read"));
  }
  *found = &it->second;
  return absl::OkStatus();
}

absl::Status SimObjectServer::FindUpload(absl::string_view key,
                                         absl::string_view id, Upload** found) {
  const auto it = uploads_.find(id);
  if (it == uploads_.end() || it->second.key != key) {
    return absl::NotFoundError(
        absl::StrCat("s3://bucket/", key, ": no upload ", id));
  }
  *found = &it->second;
  return absl::OkStatus();
}

bool SimObjectServer::IsLate() {
  absl::MutexLock lock(&mutex_);
  return random_() % 100 < options_.percent_late;
}

void SimObjectServer::CountInFlight(int64_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  bytes_in_flight_ += num_bytes;
  most_bytes_in_flight_ = std::max(most_bytes_in_flight_, bytes_in_flight_);
}

}  // namespace dcp::testing
