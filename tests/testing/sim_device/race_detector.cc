// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/sim_device/race_detector.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/sim_device/options.h"

namespace sim {
namespace {

const char* Verb(bool writes) { return writes ? "writes" : "reads"; }

std::string Issued(const char* which, const std::string& stack) {
  return stack.empty() ? ""
                       : absl::StrCat("\n  ", which, " was issued at\n", stack);
}

}  // namespace

size_t RaceDetector::AddActor(std::string name) {
  actors_.push_back(std::move(name));
  return actors_.size() - 1;
}

void RaceDetector::RenameActor(size_t actor, std::string name) {
  actors_[actor] = std::move(name);
}

void RaceDetector::AddSegment(uintptr_t begin, uintptr_t end) {
  segments_[begin] = {.end = end, .allocations = {}, .records = {}};
}

void RaceDetector::RemoveSegment(uintptr_t begin) { segments_.erase(begin); }

RaceDetector::Segment* RaceDetector::SegmentAt(uintptr_t address) {
  auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  Segment& segment = std::prev(after)->second;
  return address < segment.end ? &segment : nullptr;
}

void RaceDetector::OnAllocate(uintptr_t begin, uintptr_t end) {
  Segment* segment = SegmentAt(begin);
  if (segment == nullptr) return;
  auto& allocations = segment->allocations;
  auto it = allocations.upper_bound(begin);
  if (it != allocations.begin() && std::prev(it)->second.end > begin) --it;
  while (it != allocations.end() && it->first < end) it = allocations.erase(it);
  allocations[begin] = {.end = end, .number = ++num_allocations_};
}

std::string RaceDetector::OnActor(const Work& work) const {
  return work.actor == kHost ? absl::StrCat(work.name, " on the host")
                             : absl::StrCat(work.name, " on stream '",
                                            actors_[work.actor], "'");
}

void RaceDetector::Add(const std::string& key, std::string race) {
  if (!seen_.insert(key).second) return;
  if (options().print) {
    std::fprintf(stderr, "[sim %d] race: %s\n", getpid(), race.c_str());
  }
  races_.push_back(std::move(race));
}

void RaceDetector::Report(const Segment& segment, const Record& old,
                          const Access& access, const Work& work) {
  const auto after = segment.allocations.upper_bound(access.extent.begin());
  std::string where = "memory";
  bool is_reused = false;
  if (after != segment.allocations.begin()) {
    const auto& [begin, allocation] = *std::prev(after);
    where = absl::StrCat("bytes ", access.extent.begin() - begin, " to ",
                         access.extent.end() - begin, " of an allocation of ",
                         allocation.end - begin);
    is_reused = old.allocation < allocation.number;
  }
  Add(absl::StrCat(old.work.name, "|", old.work.actor, "|", work.name, "|",
                   work.actor),
      absl::StrCat(
          OnActor(work), " ", Verb(access.writes), " ", where, ", which ",
          OnActor(old.work), " ", Verb(old.access.writes),
          is_reused ? " from before the memory was freed and used again" : "",
          ", and nothing orders the two", Issued("the first", work.stack),
          Issued("the second", old.work.stack)));
}

void RaceDetector::Check(const Access& access, const Work& work,
                         const VectorClock& known, const VectorClock& host) {
  if (access.extent.empty()) return;
  Segment* segment = SegmentAt(access.extent.begin());
  if (segment == nullptr) return;
  uint64_t allocation = 0;
  const auto after = segment->allocations.upper_bound(access.extent.begin());
  if (after != segment->allocations.begin()) {
    allocation = std::prev(after)->second.number;
  }
  std::erase_if(segment->records, [&](const Record& old) {
    // All later work is ordered after it, so it cannot take part in a race.
    if (host.at(old.work.actor) >= old.work.tick) return true;
    const bool ordered = IsOrdered(old, work.actor, known);
    if (!ordered && (old.access.writes || access.writes) &&
        old.access.extent.Overlaps(access.extent)) {
      Report(*segment, old, access, work);
      return true;
    }
    // Work that is ordered after this access is ordered after the old one, too.
    return ordered && access.extent.Covers(old.access.extent) &&
           (access.writes ||
            (!old.access.writes && old.work.actor == work.actor));
  });
  segment->records.push_back(
      {.access = access, .work = work, .allocation = allocation});
}

bool RaceDetector::IsInUse(uintptr_t begin, uintptr_t end, size_t actor,
                           const VectorClock& known, bool reports) {
  Segment* segment = SegmentAt(begin);
  if (segment == nullptr) return false;
  const Extent memory(begin, end);
  for (const Record& record : segment->records) {
    if (IsOrdered(record, actor, known) ||
        !record.access.extent.Overlaps(memory)) {
      continue;
    }
    if (!reports) return true;
    Add(absl::StrCat(record.work.name, "|", record.work.actor, "|reuse|",
                     actor),
        absl::StrCat("memory that ", OnActor(record.work), " ",
                     Verb(record.access.writes),
                     " was freed, and an allocation for stream '",
                     actors_[actor],
                     "' may use it again, and nothing orders the two",
                     Issued("the first", record.work.stack)));
    return true;
  }
  return false;
}

std::vector<std::string> RaceDetector::TakeRaces() {
  seen_.clear();
  return std::exchange(races_, {});
}

}  // namespace sim
