// SPDX-License-Identifier: Apache-2.0
// Pipeline stages never wait for each other in a circle on a backend that
// ignores tags. The stages run over Gloo, each behind a backend that notes its
// messages and waits, and a model of NCCL judges the notes:
//   - Between two ranks in a group there is one queue for both directions, and
//     one for all ranks in a group for calls that are coalesced. The host on
//     the rank that first uses a queue waits for all ranks on that queue.
//   - A send and its receive end together, when both are first in their queues
//     and everything has ended that their ranks waited for before they issued
//     them.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "gtest/gtest.h"
#include "tests/fsdp/start_rank.h"
#include "tests/testing/counting_backend.h"
#include "tests/testing/ranks.h"
#include "torch/nn.h"

namespace fsdp::testing {
namespace {

// ---- A stage's actions -----------------------------------------------------

// A message that is issued, or, if `queue` is empty, the wait for one.
struct Event {
  std::string queue = {};    // "first/0:1"
  size_t message = 0;        // the place among the stage's messages
  bool sends = false;        // or receives
  int peer = 0;              // the other stage
  std::string content = {};  // the same at both ends
};

using Events = std::vector<Event>;

class NotedWork : public c10d::Work {
 public:
  NotedWork(c10::intrusive_ptr<c10d::Work> work, size_t message, Events& events)
      : work_(std::move(work)), message_(message), events_(events) {}
  bool wait(std::chrono::milliseconds timeout) override {
    events_.push_back({.message = message_});
    return work_->wait(timeout);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  const size_t message_;
  Events& events_;
};

// The notes from all backends on a stage.
struct Notes {
  Events events;
  size_t num_messages = 0;
};

class NotingBackend : public CountingBackend {
 public:
  NotingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::string name,
                Notes& notes)
      : CountingBackend(std::move(inner)),
        name_(std::move(name)),
        notes_(notes) {}

  const std::string getBackendName() const override { return "noting"; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { coalesces_ = true; }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    coalesces_ = false;
    return coalesced_.back();
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors,
                                      int peer, int tag) override {
    return Note(CountingBackend::send(tensors, peer, tag), true, peer, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors,
                                      int peer, int tag) override {
    return Note(CountingBackend::recv(tensors, peer, tag), false, peer, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Work> Note(c10::intrusive_ptr<c10d::Work> work,
                                      bool sends, int peer, int tag) {
    const auto [low, high] = std::minmax({getRank(), peer});
    const std::string pair = coalesces_ ? "all" : absl::StrCat(low, ":", high);
    // Gloo delivers messages with one tag in order.
    const int64_t number = numbers_[{sends, peer, tag}]++;
    const size_t message = notes_.num_messages++;
    notes_.events.push_back({.queue = absl::StrCat(name_, "/", pair),
                             .message = message,
                             .sends = sends,
                             .peer = peer,
                             .content = absl::StrCat(tag, "/", number)});
    work =
        c10::make_intrusive<NotedWork>(std::move(work), message, notes_.events);
    if (coalesces_) coalesced_.push_back(work);
    return work;
  }

  const std::string name_;
  Notes& notes_;
  bool coalesces_ = false;
  // Kept, because their callers wait only for the last one in a group.
  std::vector<c10::intrusive_ptr<c10d::Work>> coalesced_;
  std::map<std::tuple<bool, int, int>, int64_t> numbers_;
};

void NoteMessages(const ProcessGroup& group, const std::string& name,
                  Notes& notes) {
  group->setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<NotingBackend>(
          group->getBackend(c10::DeviceType::CPU), name, notes)));
}

std::string ToText(const Events& events) {
  std::string text;
  for (const Event& event : events) {
    absl::StrAppend(&text, event.queue.empty() ? "-" : event.queue, " ",
                    event.message, " ", event.sends ? 1 : 0, " ", event.peer,
                    " ", event.content.empty() ? "-" : event.content, "\n");
  }
  return text;
}

// ---- The model of NCCL -----------------------------------------------------

class Judge {
 public:
  explicit Judge(std::vector<Events> stages) : stages_(stages.size()) {
    for (size_t i = 0; i < stages.size(); ++i) {
      stages_[i].events = std::move(stages[i]);
    }
  }

  // Where every stage stands when none can go on; empty if all are done.
  std::string Stuck() {
    while (GoOn()) {
    }
    std::string text = mismatch_;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const Stage& stage = stages_[i];
      if (stage.computed == stage.events.size()) continue;
      absl::StrAppend(&text, "stage ", i, " issued ", stage.issued,
                      " and reached ", stage.computed, " of ",
                      stage.events.size(), " events; ");
    }
    return text;
  }

 private:
  struct Stage {
    Events events;
    size_t issued = 0;    // events that the host has passed
    size_t computed = 0;  // and the stream that computes
    std::set<size_t> done;
    // Places in `events` of issued messages, by queue.
    std::map<std::string, std::vector<size_t>> queues;
  };

  bool GoOn() {
    bool moves = false;
    for (Stage& stage : stages_) moves = Issue(stage) || moves;
    for (Stage& stage : stages_) moves = Compute(stage) || moves;
    for (size_t i = 0; i < stages_.size(); ++i) moves = Move(i) || moves;
    return moves;
  }

  bool Issue(Stage& stage) {
    const size_t before = stage.issued;
    for (; stage.issued < stage.events.size(); ++stage.issued) {
      const Event& event = stage.events[stage.issued];
      if (event.queue.empty()) continue;
      std::set<const Stage*>& users = users_[event.queue];
      users.insert(&stage);
      const bool is_pair = event.queue.find(':') != std::string::npos;
      if (users.size() < (is_pair ? 2 : stages_.size())) break;
      stage.queues[event.queue].push_back(stage.issued);
    }
    return stage.issued > before;
  }

  static bool Compute(Stage& stage) {
    const size_t before = stage.computed;
    for (; stage.computed < stage.issued; ++stage.computed) {
      const Event& event = stage.events[stage.computed];
      if (event.queue.empty() && !stage.done.contains(event.message)) break;
    }
    return stage.computed > before;
  }

  // The first message in a queue; null if it cannot go yet.
  static const Event* First(const Stage& stage, const std::string& queue) {
    const auto found = stage.queues.find(queue);
    if (found == stage.queues.end() || found->second.empty()) return nullptr;
    const size_t place = found->second.front();
    return place < stage.computed ? &stage.events[place] : nullptr;
  }

  // Ends a message that this stage sends and the peer receives.
  bool Move(size_t index) {
    Stage& stage = stages_[index];
    for (auto& [queue, places] : stage.queues) {
      const Event* mine = First(stage, queue);
      if (mine == nullptr || !mine->sends) continue;
      Stage& other = stages_[static_cast<size_t>(mine->peer)];
      const Event* theirs = First(other, queue);
      if (theirs == nullptr || theirs->peer != static_cast<int>(index)) {
        continue;
      }
      if (theirs->sends || theirs->content != mine->content) {
        mismatch_ = absl::StrCat(
            "in ", queue, " the send ", mine->content, " meets the ",
            theirs->sends ? "send " : "receive ", theirs->content, "; ");
        return false;
      }
      stage.done.insert(mine->message);
      other.done.insert(theirs->message);
      places.erase(places.begin());
      std::vector<size_t>& at_other = other.queues[queue];
      at_other.erase(at_other.begin());
      return true;
    }
    return false;
  }

  std::vector<Stage> stages_;
  std::map<std::string, std::set<const Stage*>> users_;
  std::string mismatch_;
};

// ---- All schedules ---------------------------------------------------------

enum class Way { kTrain, kTrainBehindFrozenStage, kEvaluate };
constexpr Way kWays[] = {Way::kTrain, Way::kTrainBehindFrozenStage,
                         Way::kEvaluate};
constexpr int64_t kMostMicrobatches = 8;

int64_t StagesPerRank(ScheduleKind kind) {
  return kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B ? 1 : 2;
}

std::unique_ptr<PipelineSchedule> MakeNotedSchedule(const DeviceMesh& mesh,
                                                    ScheduleKind kind, Way way,
                                                    int64_t num_microbatches) {
  const PipelineShape shape{mesh.size(), StagesPerRank(kind), num_microbatches};
  std::vector<PipelineStage> stages;
  for (const int64_t stage : StagesOnRank(kind, shape, get_rank())) {
    torch::nn::Linear model(1, 1);
    if (way == Way::kTrainBehindFrozenStage && stage == 0) {
      for (torch::Tensor& p : model->parameters()) p.set_requires_grad(false);
    }
    stages.emplace_back(model, mesh, StagePlace{stage, shape.num_stages()});
  }
  const auto loss = [](const torch::Tensor& output, const torch::Tensor&) {
    return output.mean();
  };
  return MakeSchedule(kind, stages, num_microbatches, loss);
}

bool IsPossible(ScheduleKind kind, const PipelineShape& shape) {
  if (kind == ScheduleKind::k1F1B || kind == ScheduleKind::kDualPipeV) {
    return shape.num_microbatches >= shape.num_stages();
  }
  if (kind == ScheduleKind::kGPipe || kind == ScheduleKind::kZBVZeroBubble) {
    return true;
  }
  const int64_t rounds =
      std::max<int64_t>(1, shape.num_microbatches / shape.num_ranks);
  return shape.num_microbatches % rounds == 0;
}

// Runs `judge` for each schedule on `num_ranks` ranks, with the schedule's
// name.
void ForEachSchedule(
    int64_t num_ranks,
    const std::function<void(const std::string& name, ScheduleKind kind,
                             Way way, int64_t num_microbatches)>& judge) {
  for (int64_t i = 0; i < kNumScheduleKinds - 1; ++i) {
    const auto kind = static_cast<ScheduleKind>(i);
    for (const Way way : kWays) {
      for (int64_t num = 1; num <= kMostMicrobatches; ++num) {
        if (!IsPossible(kind, {num_ranks, StagesPerRank(kind), num})) continue;
        judge(absl::StrCat(ScheduleName(kind), ", way ", static_cast<int>(way),
                           ", ", num_ranks, " ranks, ", num, " microbatches"),
              kind, way, num);
      }
    }
  }
}

// Makes every schedule, runs it twice, and reports the events.
void RunAndReport() {
  StartRank();
  const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()}, {"pp"});
  Notes notes;
  NoteMessages(mesh.get_group(), "first", notes);
  NoteMessages(second_group(mesh.get_group()), "second", notes);
  ForEachSchedule(get_world_size(), [&](const std::string&, ScheduleKind kind,
                                        Way way, int64_t num_microbatches) {
    notes.events.clear();
    const auto schedule = MakeNotedSchedule(mesh, kind, way, num_microbatches);
    const torch::Tensor rows = torch::ones({num_microbatches, 1});
    for (int step = 0; step < 2; ++step) {
      const PipelineBatch batch = {.args = {rows}, .target = rows};
      way == Way::kEvaluate ? schedule->eval(batch) : schedule->step(batch);
    }
    Report(absl::StrCat(ToText(notes.events), "end\n"));
  });
}

// Reads the next schedule's events.
Events ReadEvents(std::istream& text) {
  Events events;
  Event event;
  while (text >> event.queue && event.queue != "end") {
    text >> event.message >> event.sends >> event.peer >> event.content;
    if (event.queue == "-") event.queue.clear();
    events.push_back(event);
  }
  return events;
}

TEST(MessageOrder, NoScheduleWaitsInACircleWithoutTags) {
  for (int num_ranks = 2; num_ranks <= 5; ++num_ranks) {
    std::vector<std::istringstream> reports;
    for (const std::string& text : RunRanks(num_ranks, RunAndReport)) {
      reports.emplace_back(text);
    }
    if (HasFailure()) return;
    ForEachSchedule(num_ranks,
                    [&](const std::string& name, ScheduleKind, Way, int64_t) {
                      std::vector<Events> stages;
                      for (std::istringstream& report : reports) {
                        stages.push_back(ReadEvents(report));
                        EXPECT_FALSE(stages.back().empty()) << name;
                      }
                      EXPECT_EQ(Judge(std::move(stages)).Stuck(), "") << name;
                    });
  }
}

// ---- The model itself ------------------------------------------------------

// A stage that sends to `peer` in one queue and receives from it in another, or
// in the same one.
Events SendAndReceive(int peer, const std::string& send_queue,
                      const std::string& receive_queue) {
  return {{.queue = send_queue,
           .message = 0,
           .sends = true,
           .peer = peer,
           .content = absl::StrCat("to ", peer)},
          {.queue = receive_queue,
           .message = 1,
           .peer = peer,
           .content = absl::StrCat("to ", 1 - peer)},
          {.message = 1},
          {.message = 0}};
}

TEST(MessageOrder, TwoSendsThatMeetInAQueueNeverEnd) {
  EXPECT_EQ(
      Judge({SendAndReceive(1, "0:1", "0:1"), SendAndReceive(0, "0:1", "0:1")})
          .Stuck(),
      "in 0:1 the send to 0 meets the send to 1; "
      "stage 0 issued 4 and reached 2 of 4 events; "
      "stage 1 issued 4 and reached 2 of 4 events; ");
}

TEST(MessageOrder, TheFirstUserOfAQueueWaitsForTheOther) {
  EXPECT_EQ(Judge({SendAndReceive(1, "a/0:1", "b/0:1"),
                   SendAndReceive(0, "b/0:1", "a/0:1")})
                .Stuck(),
            "stage 0 issued 0 and reached 0 of 4 events; "
            "stage 1 issued 0 and reached 0 of 4 events; ");
}

}  // namespace
}  // namespace fsdp::testing
