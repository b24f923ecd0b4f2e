// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/pickle_calls.h"
#include "dcp/format/pickle/pickle_input.h"
#include "dcp/format/pickle/pickle_leaves.h"
#include "dcp/format/pickle/pickle_memo.h"
#include "dcp/format/pickle/pickle_stack.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The newest protocol that Python has.
constexpr uint64_t kMaxProtocol = 5;

// Small enough that the smallest index in a test exercises collection.
constexpr size_t kLeastSlackBytes = size_t{4} << 10;

// Groups of opcodes. All others are refused, among them PERSID, INST, OBJ, EXT1
// to EXT4 and the opcodes for out-of-band buffers.
enum class Group : uint8_t {
  kRefused,
  kStack,
  kScalar,
  kText,
  kLine,
  kMemo,
  kEmpty,
  kContainer,
  kObject,
  kFrame,
};

constexpr std::array<Group, 256> MakeGroups() {
  std::array<Group, 256> groups{};
  const auto add = [&](Group group, absl::string_view opcodes) {
    for (const char opcode : opcodes) {
      groups[static_cast<uint8_t>(opcode)] = group;
    }
  };
  add(Group::kStack, "(012");
  add(Group::kScalar, kScalarOpcodes);
  add(Group::kText, kTextOpcodes);
  add(Group::kLine, kLineOpcodes);
  add(Group::kMemo, "pgqrhj\x94");
  add(Group::kEmpty, "]})\x85\x86\x87");
  add(Group::kContainer, "aesutld\x91");
  add(Group::kObject, "cRbQ\x81\x8f\x90\x92\x93");
  add(Group::kFrame, "\x80\x95");
  return groups;
}

constexpr std::array<Group, 256> kGroups = MakeGroups();

// The stack machine. It makes one pass over the opcodes, with values on an
// explicit stack.
class Machine {
 public:
  Machine(ByteSpan bytes, const PickleOptions& options, ValueArena& arena)
      : input_(bytes),
        options_(options),
        arena_(arena),
        calls_(options, arena),
        memo_(bytes),
        slack_(std::max(kLeastSlackBytes, bytes.size() / 4)),
        collect_at_(slack_) {}

  absl::StatusOr<PickleResult> Run();

 private:
  absl::Status Step(uint8_t opcode);
  absl::Status StepStack(uint8_t opcode);
  absl::Status StepLeaf(uint8_t opcode);
  absl::Status StepMemo(uint8_t opcode);
  absl::Status StepEmpty(uint8_t opcode);
  absl::Status StepContainer(uint8_t opcode);
  absl::Status StepObject(uint8_t opcode);
  absl::Status StepFrame(uint8_t opcode);

  absl::Status PushTuple(size_t count);
  absl::Status Put(uint64_t slot);
  absl::Status Get(uint64_t slot);
  absl::Status Extend(Value container, absl::Span<const Value> elements);
  absl::Status Update(Value container, absl::Span<const Value> items);
  absl::Status AddItems();
  absl::Status PushGlobal(PickleGlobalName global);
  absl::Status PushBuiltin(absl::string_view name, Value argument);
  absl::Status Reduce(bool is_new);
  absl::Status NewObjEx();
  absl::Status Build();
  void ReplaceTop();

  PickleInput input_;
  const PickleOptions& options_;
  ValueArena& arena_;
  PickleCalls calls_;
  PickleStack stack_;
  PickleMemo memo_;
  // How much the arena may grow before unreferenced values are freed. Values
  // take about seven times an index's bytes, so they are freed at most some
  // thirty times, whatever the size.
  size_t slack_;
  size_t collect_at_;
};

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(what);
}

absl::Status Machine::PushTuple(size_t count) {
  DCP_RETURN_IF_ERROR(stack_.Need(count));
  const Value tuple = arena_.Tuple(stack_.From(stack_.size() - count));
  stack_.Pop(count);
  stack_.Push(tuple);
  return absl::OkStatus();
}

absl::Status Machine::Put(uint64_t slot) {
  DCP_RETURN_IF_ERROR(stack_.Need(1));
  return memo_.Put(slot, stack_.Top());
}

absl::Status Machine::Get(uint64_t slot) {
  DCP_ASSIGN_OR_RETURN(const Value value, memo_.Get(slot));
  stack_.Push(value);
  return absl::OkStatus();
}

absl::Status Machine::Extend(Value container,
                             absl::Span<const Value> elements) {
  if (!container.is(Kind::kList) && !container.is(Kind::kCall)) {
    return Malformed(absl::StrCat("expected a list to append to, found ",
                                  KindName(container.kind())));
  }
  arena_.Extend(container, elements);
  return absl::OkStatus();
}

absl::Status Machine::Update(Value container, absl::Span<const Value> items) {
  if (!container.is(Kind::kDict) && !container.is(Kind::kCall)) {
    return Malformed(absl::StrCat("expected a dict to set items in, found ",
                                  KindName(container.kind())));
  }
  if (items.size() % 2 != 0) return Malformed("a key without a value");
  DCP_RETURN_IF_ERROR(CheckPickleKeys(items));
  arena_.Update(container, items);
  return absl::OkStatus();
}

// Adds to a set, which is represented as a call with one list.
absl::Status Machine::AddItems() {
  size_t first = 0;
  DCP_RETURN_IF_ERROR(stack_.PopMark(first));
  const size_t count = stack_.size() - first;
  DCP_RETURN_IF_ERROR(stack_.Need(count + 1));
  const Value set = stack_.Top(count);
  if (!set.IsCallOf("builtins", "set") || set.args().items().size() != 1 ||
      !set.args().items()[0].is(Kind::kList)) {
    return Malformed("ADDITEMS target is not a set");
  }
  DCP_RETURN_IF_ERROR(Extend(set.args().items()[0], stack_.From(first)));
  stack_.Pop(count);
  return absl::OkStatus();
}

absl::Status Machine::PushGlobal(PickleGlobalName global) {
  DCP_ASSIGN_OR_RETURN(const Value value, calls_.MakeGlobal(global));
  stack_.Push(value);
  return absl::OkStatus();
}

absl::Status Machine::PushBuiltin(absl::string_view name, Value argument) {
  DCP_ASSIGN_OR_RETURN(const Value call, calls_.MakeBuiltin(name, argument));
  stack_.Push(call);
  return absl::OkStatus();
}

absl::Status Machine::Reduce(bool is_new) {
  DCP_RETURN_IF_ERROR(stack_.Need(2));
  DCP_ASSIGN_OR_RETURN(const Value call,
                       calls_.MakeCall(stack_.Top(1), stack_.Top(), is_new));
  stack_.Pop(2);
  stack_.Push(call);
  ReplaceTop();
  return absl::OkStatus();
}

// Lets the caller replace the object on top of the stack.
void Machine::ReplaceTop() {
  if (!options_.replace.has_value() || !stack_.Top().is(Kind::kCall)) return;
  const std::optional<Value> other = (*options_.replace)(stack_.Top());
  if (!other.has_value()) return;
  stack_.Top() = *other;
  if (arena_.num_bytes() < collect_at_) return;
  arena_.KeepOnly({stack_.values(), memo_.held()});
  // Kept values are copied, so the more there are, the less often they may be
  // copied.
  collect_at_ = arena_.num_bytes() + std::max(slack_, arena_.num_bytes() / 2);
}

absl::Status Machine::NewObjEx() {
  DCP_RETURN_IF_ERROR(stack_.Need(3));
  if (!stack_.Top().is(Kind::kDict))
    return Malformed("the keyword arguments of NEWOBJ_EX are not a dict");
  if (!stack_.Top().items().empty()) {
    if (!calls_.IsUnknown(stack_.Top(2))) {
      return Malformed("NEWOBJ_EX with keyword arguments is not allowed");
    }
    stack_.Top(1) = arena_.Tuple({stack_.Top(1), stack_.Top()});
  }
  stack_.Pop(1);
  return Reduce(/*is_new=*/true);
}

absl::Status Machine::Build() {
  DCP_RETURN_IF_ERROR(stack_.Need(2));
  const Value object = stack_.Top(1);
  if (!object.is(Kind::kCall)) {
    return Malformed(absl::StrCat("BUILD target is ", KindName(object.kind()),
                                  ", not an object"));
  }
  if (!object.state().is_none())
    return Malformed("BUILD target already has a state");
  arena_.SetState(object, stack_.Top());
  stack_.Pop(1);
  ReplaceTop();
  return absl::OkStatus();
}

absl::Status Machine::StepLeaf(uint8_t opcode) {
  Value value;
  switch (kGroups[opcode]) {
    case Group::kScalar:
      DCP_RETURN_IF_ERROR(ReadScalar(opcode, input_, arena_, value));
      break;
    case Group::kText:
      DCP_RETURN_IF_ERROR(ReadText(opcode, input_, arena_, value));
      if (opcode == 0x96) return PushBuiltin("bytearray", value);
      break;
    default:
      DCP_RETURN_IF_ERROR(ReadLine(opcode, input_, arena_, value));
      break;
  }
  stack_.Push(value);
  return absl::OkStatus();
}

absl::Status Machine::StepEmpty(uint8_t opcode) {
  switch (opcode) {
    case ']':
      stack_.Push(arena_.List());
      return absl::OkStatus();
    case '}':
      stack_.Push(arena_.Dict());
      return absl::OkStatus();
    case ')':
      return PushTuple(0);
    default:  // TUPLE1 to TUPLE3
      return PushTuple(opcode - 0x84u);
  }
}

absl::Status Machine::StepContainer(uint8_t opcode) {
  size_t first = 0;
  switch (opcode) {
    case 'a': {  // APPEND
      DCP_RETURN_IF_ERROR(stack_.Need(2));
      DCP_RETURN_IF_ERROR(
          Extend(stack_.Top(1), stack_.From(stack_.size() - 1)));
      stack_.Pop(1);
      return absl::OkStatus();
    }
    case 's': {  // SETITEM
      DCP_RETURN_IF_ERROR(stack_.Need(3));
      DCP_RETURN_IF_ERROR(
          Update(stack_.Top(2), stack_.From(stack_.size() - 2)));
      stack_.Pop(2);
      return absl::OkStatus();
    }
    default:
      break;
  }
  DCP_RETURN_IF_ERROR(stack_.PopMark(first));
  const size_t count = stack_.size() - first;
  Value made;
  switch (opcode) {
    case 'e':  // APPENDS
      DCP_RETURN_IF_ERROR(stack_.Need(count + 1));
      DCP_RETURN_IF_ERROR(Extend(stack_.Top(count), stack_.From(first)));
      stack_.Pop(count);
      return absl::OkStatus();
    case 'u':  // SETITEMS
      DCP_RETURN_IF_ERROR(stack_.Need(count + 1));
      DCP_RETURN_IF_ERROR(Update(stack_.Top(count), stack_.From(first)));
      stack_.Pop(count);
      return absl::OkStatus();
    case 't':  // TUPLE
      made = arena_.Tuple(stack_.From(first));
      break;
    case 'd':  // DICT
      made = arena_.Dict();
      DCP_RETURN_IF_ERROR(Update(made, stack_.From(first)));
      break;
    default:  // LIST, FROZENSET
      made = arena_.List(stack_.From(first));
      break;
  }
  stack_.Pop(count);
  if (opcode == 0x91) return PushBuiltin("frozenset", made);
  stack_.Push(made);
  return absl::OkStatus();
}

absl::Status Machine::StepMemo(uint8_t opcode) {
  uint64_t index = 0;
  switch (opcode) {
    case 'p':    // PUT
    case 'g': {  // GET
      absl::string_view line;
      DCP_RETURN_IF_ERROR(input_.TakeLine(line));
      if (!absl::SimpleAtoi(line, &index)) {
        return Malformed("malformed memo index");
      }
      return opcode == 'p' ? Put(index) : Get(index);
    }
    case 0x94:  // MEMOIZE counts the slots in use
      DCP_RETURN_IF_ERROR(stack_.Need(1));
      return memo_.Put(stack_.Top());
    case 'q':  // BINPUT
      DCP_RETURN_IF_ERROR(input_.TakeNumber<uint8_t>(index));
      return Put(index);
    case 'r':  // LONG_BINPUT
      DCP_RETURN_IF_ERROR(input_.TakeNumber<uint32_t>(index));
      return Put(index);
    case 'h':  // BINGET
      DCP_RETURN_IF_ERROR(input_.TakeNumber<uint8_t>(index));
      return Get(index);
    default:  // LONG_BINGET
      DCP_RETURN_IF_ERROR(input_.TakeNumber<uint32_t>(index));
      return Get(index);
  }
}

absl::Status Machine::StepObject(uint8_t opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      PickleGlobalName global;
      DCP_RETURN_IF_ERROR(input_.TakeLine(global.module));
      DCP_RETURN_IF_ERROR(input_.TakeLine(global.name));
      return PushGlobal(global);
    }
    case 0x93: {  // STACK_GLOBAL
      DCP_RETURN_IF_ERROR(stack_.Need(2));
      if (!stack_.Top(1).is(Kind::kStr) || !stack_.Top().is(Kind::kStr)) {
        return Malformed("the name of a global is not a str");
      }
      const PickleGlobalName global = {stack_.Top(1).text(),
                                       stack_.Top().text()};
      stack_.Pop(2);
      return PushGlobal(global);
    }
    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      return Reduce(/*is_new=*/opcode != 'R');
    case 0x92:
      return NewObjEx();
    case 'b':
      return Build();
    case 0x90:
      return AddItems();
    case 0x8f:  // EMPTY_SET
      return PushBuiltin("set", arena_.List());
    default: {  // BINPERSID
      DCP_RETURN_IF_ERROR(stack_.Need(1));
      if (!options_.allow_persistent_ids) {
        return Malformed("a persistent id is not allowed here");
      }
      stack_.Top() = arena_.Persistent(stack_.Top());
      return absl::OkStatus();
    }
  }
}

absl::Status Machine::StepStack(uint8_t opcode) {
  size_t first = 0;
  switch (opcode) {
    case '(':  // MARK
      stack_.PushMark();
      return absl::OkStatus();
    case '0':  // POP; pops a mark if no value is above it
      if (stack_.is_at_mark()) return stack_.PopMark(first);
      stack_.Pop(1);
      return absl::OkStatus();
    case '1':  // POP_MARK
      DCP_RETURN_IF_ERROR(stack_.PopMark(first));
      stack_.Pop(stack_.size() - first);
      return absl::OkStatus();
    default: {  // DUP
      DCP_RETURN_IF_ERROR(stack_.Need(1));
      const Value top = stack_.Top();
      stack_.Push(top);
      return absl::OkStatus();
    }
  }
}

absl::Status Machine::StepFrame(uint8_t opcode) {
  uint64_t number = 0;
  if (opcode == 0x80) {  // PROTO
    DCP_RETURN_IF_ERROR(input_.TakeNumber<uint8_t>(number));
    if (number > kMaxProtocol) {
      return Malformed(
          absl::StrCat("protocol ", number, " exceeds ", kMaxProtocol));
    }
    return absl::OkStatus();
  }
  // FRAME only tells Python how much to read at once.
  DCP_RETURN_IF_ERROR(input_.TakeNumber<uint64_t>(number));
  if (number > input_.num_left()) {
    return Malformed(absl::StrCat("expected a frame of ", number,
                                  " bytes, found ", input_.num_left()));
  }
  return absl::OkStatus();
}

absl::Status Machine::Step(uint8_t opcode) {
  switch (kGroups[opcode]) {
    case Group::kStack:
      return StepStack(opcode);
    case Group::kScalar:
    case Group::kText:
    case Group::kLine:
      return StepLeaf(opcode);
    case Group::kMemo:
      return StepMemo(opcode);
    case Group::kEmpty:
      return StepEmpty(opcode);
    case Group::kContainer:
      return StepContainer(opcode);
    case Group::kObject:
      return StepObject(opcode);
    case Group::kFrame:
      return StepFrame(opcode);
    case Group::kRefused:
      break;
  }
  return Malformed(
      absl::StrCat("opcode 0x", absl::Hex(opcode), " is not allowed"));
}

absl::StatusOr<PickleResult> Machine::Run() {
  uint64_t num_opcodes = 0;
  while (true) {
    const size_t start = input_.at();
    absl::Status status;
    if (input_.num_left() == 0) {
      status = Malformed("the opcode STOP is missing at the end");
    } else if (++num_opcodes > kMaxPickleValues) {
      status =
          Malformed(absl::StrCat("more than ", kMaxPickleValues, " opcodes"));
    } else if (const uint8_t opcode = input_.TakeOpcode(); opcode != '.') {
      status = Step(opcode);
    } else if (status = stack_.Need(1); status.ok()) {
      break;
    }
    if (!status.ok()) return Annotate(status, "pickle at byte ", start);
  }
  const uint64_t most = std::clamp(input_.at() * kMaxPickleValuesPerByte,
                                   kMinPickleValues, kMaxPickleValues);
  absl::StatusOr<uint64_t> expanded = arena_.Measure(stack_.Top(), most);
  if (!expanded.ok()) return Annotate(expanded.status(), "pickle");
  return PickleResult{.root = stack_.Top(),
                      .length = input_.at(),
                      .expanded_values = *expanded,
                      .has_unknown_globals = calls_.has_unknown_globals()};
}

}  // namespace

absl::StatusOr<PickleResult> ReadPickle(ByteSpan bytes,
                                        const PickleOptions& options,
                                        ValueArena& arena) {
  DCP_CHECK(!options.replace.has_value() || arena.num_values() == 0,
            "values of others would be freed");
  return Machine(bytes, options, arena).Run();
}

}  // namespace dcp
