// SPDX-License-Identifier: Apache-2.0
// Writes and reads actions as text.
//
// Tested by tests/fsdp/parallel/pipeline/order/order_text_test.cc.
#include "fsdp/parallel/pipeline/order/pipeline_action.h"

#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;

constexpr char kOverlap[] = "OVERLAP_F_B";
// By kind.
constexpr absl::string_view kLetters = "FBIW";

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", text.substr(0, 40), "'");
}

bool ReadNumber(absl::string_view digits, int64_t* number) {
  for (const char c : digits) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(digits, number) && *number < kMaxActionNumber;
}

PipelineAction ParseAction(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t letter = trimmed.find_first_not_of("0123456789");
  size_t kind = absl::string_view::npos;
  PipelineAction action{};
  if (letter != absl::string_view::npos) kind = kLetters.find(trimmed[letter]);
  TORCH_CHECK_VALUE(
      kind != absl::string_view::npos &&
          ReadNumber(trimmed.substr(0, letter), &action.stage) &&
          ReadNumber(trimmed.substr(letter + 1), &action.microbatch),
      Quoted(text),
      " is not an action of a pipeline: a stage, then F, B, I or W, then a "
      "microbatch, as in 2F0; messages, gathers and reductions (SEND_F, "
      "UNSHARD, REDUCE_GRAD) follow from these and cannot be given");
  action.kind = static_cast<Kind>(kind);
  return action;
}

}  // namespace

std::string to_string(const PipelineAction& action) {
  return absl::StrCat(action.stage,
                      kLetters.substr(static_cast<size_t>(action.kind), 1),
                      action.microbatch);
}

std::string to_string(const PipelineSlot& slot) {
  const std::string text = absl::StrJoin(
      slot, ";", [](std::string* out, const PipelineAction& action) {
        absl::StrAppend(out, to_string(action));
      });
  return slot.size() > 1 ? absl::StrCat("(", text, ")", kOverlap) : text;
}

PipelineSlot ParsePipelineSlot(absl::string_view text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (rest.empty()) return {};
  if (!absl::ConsumePrefix(&rest, "(")) return {ParseAction(rest)};
  TORCH_CHECK_VALUE(absl::ConsumeSuffix(&rest, absl::StrCat(")", kOverlap)),
                    Quoted(text),
                    " is not a pair of actions, as in (0F4;3B1)OVERLAP_F_B");
  PipelineSlot slot;
  for (const absl::string_view part : absl::StrSplit(rest, ';')) {
    slot.push_back(ParseAction(part));
  }
  TORCH_CHECK_VALUE(slot.size() == 2 && slot[0].kind == Kind::kForward &&
                        slot[1].kind == Kind::kBackward,
                    Quoted(text),
                    " overlaps other actions than a forward and a backward");
  return slot;
}

}  // namespace fsdp
