#include "dcp/format/pickle_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle_memo.h"
#include "dcp/format/pickle_text.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

constexpr absl::string_view kMetadataModule =
    "torch.distributed.checkpoint.metadata";

// Small enough that the smallest index in a test exercises collection.
constexpr size_t kLeastSlackBytes = size_t{4} << 10;

// A name from a file, escaped and shortened for a message.
std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxShown = 100;
  std::string text = absl::CHexEscape(name.substr(0, kMaxShown));
  if (name.size() > kMaxShown) text += "...";
  return text;
}

// Groups of opcodes. All others are refused, among them PERSID, INST, OBJ, EXT1
// to EXT4 and those of out-of-band buffers.
enum class Group : uint8_t {
  kRefused,
  kStack,
  kScalar,
  kText,
  kMemo,
  kEmpty,
  kContainer,
  kObject,
  kLine,
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
  add(Group::kScalar, "NKMJG\x88\x89\x8a\x8b");
  add(Group::kText, "XUTBC\x8c\x8d\x8e\x96");
  add(Group::kMemo, "qrhj\x94");
  add(Group::kEmpty, "]})\x85\x86\x87");
  add(Group::kContainer, "aesutld\x91");
  add(Group::kObject, "cRbQ\x81\x8f\x90\x92\x93");
  add(Group::kLine, "ILFSVpg");
  add(Group::kFrame, "\x80\x95");
  return groups;
}

constexpr std::array<Group, 256> kGroups = MakeGroups();

struct GlobalName {
  absl::string_view module;
  absl::string_view name;
};

// The name in Python 3. Python's own pickler writes int as __builtin__.long and
// str as __builtin__.unicode for protocol 2.
GlobalName ModernName(GlobalName global) {
  if (global.module == "__builtin__") {
    global.module = "builtins";
    if (global.name == "long") global.name = "int";
    if (global.name == "unicode") global.name = "str";
    if (global.name == "xrange") global.name = "range";
  } else if (global.module == "copy_reg") {
    global.module = "copyreg";
  } else if (global.module == "pathlib._local") {
    global.module = "pathlib";
  }
  return global;
}

// The stack machine. It makes one pass over the opcodes, with values on an
// explicit stack. A mark is the height of the stack when it was set, and
// nothing below the last mark can be popped before the mark is.
class Machine {
 public:
  Machine(ByteSpan bytes, const PickleOptions& options, ValueArena& arena)
      : bytes_(bytes),
        options_(options),
        arena_(arena),
        memo_(bytes),
        slack_(std::max(kLeastSlackBytes, bytes.size() / 4)),
        collect_at_(slack_) {}

  absl::StatusOr<PickleResult> Run();

 private:
  absl::Status Step(uint8_t opcode);
  absl::Status StepStack(uint8_t opcode);
  absl::Status StepScalar(uint8_t opcode);
  absl::Status StepText(uint8_t opcode);
  absl::Status StepMemo(uint8_t opcode);
  absl::Status StepEmpty(uint8_t opcode);
  absl::Status StepContainer(uint8_t opcode);
  absl::Status StepObject(uint8_t opcode);
  absl::Status StepLine(uint8_t opcode);
  absl::Status StepFrame(uint8_t opcode);

  // Read an operand.
  absl::Status Take(uint64_t length, absl::string_view& text);
  absl::Status Truncated(uint64_t wanted) const;
  absl::Status TakeLine(absl::string_view& line);
  template <typename T>
  absl::Status TakeNumber(uint64_t& number);

  // Work on the stack.
  absl::Status Need(size_t count) const;
  absl::Status PopMark(size_t& first);
  void Push(Value value) { stack_.push_back(value); }
  Value& Top(size_t below = 0) { return stack_[stack_.size() - 1 - below]; }
  void Pop(size_t count) { stack_.resize(stack_.size() - count); }
  absl::Span<const Value> From(size_t first) const {
    return absl::MakeConstSpan(stack_).subspan(first);
  }

  absl::Status PushStr(uint64_t length);
  absl::Status PushOldStr(uint64_t length);
  absl::Status PushInt(absl::string_view little_endian);
  absl::Status PushTuple(size_t count);
  absl::Status Put(uint64_t slot);
  absl::Status Get(uint64_t slot);
  absl::Status Extend(Value container, absl::Span<const Value> elements);
  absl::Status Update(Value container, absl::Span<const Value> items);
  absl::Status AddItems();
  absl::Status CheckKeys(absl::Span<const Value> items) const;
  absl::StatusOr<Value> MakeGlobal(GlobalName global);
  bool IsUnknown(const Value& value) const {
    return value.is(Kind::kGlobal) &&
           !options_.allow_global(value.module(), value.name());
  }
  absl::Status PushGlobal(GlobalName global);
  absl::Status PushCallOf(absl::string_view name, Value argument);
  absl::Status Reduce(bool is_new);
  absl::Status NewObjEx();
  absl::StatusOr<Value> MakeCall(Value callable, Value args, bool is_new);
  absl::Status CheckArguments(Value callable,
                              absl::Span<const Value> args) const;
  absl::StatusOr<Value> MakeBytes(absl::Span<const Value> args);
  absl::StatusOr<Value> MakeEnum(absl::Span<const Value> args);
  absl::Status Build();
  void ReplaceTop();

  ByteSpan bytes_;
  const PickleOptions& options_;
  ValueArena& arena_;
  size_t at_ = 0;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  size_t floor_ = 0;  // the last mark
  bool has_unknown_globals_ = false;
  PickleMemo memo_;
  // How much the arena may grow before values that nothing refers to are freed.
  // Values take about seven times the bytes of an index, so they are freed
  // about thirty times, whatever the size.
  size_t slack_;
  size_t collect_at_;
};

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(what);
}

absl::Status Machine::Take(uint64_t length, absl::string_view& text) {
  if (length > bytes_.size() - at_) return Truncated(length);
  text = AsText(bytes_.subspan(at_, length));
  at_ += length;
  return absl::OkStatus();
}

absl::Status Machine::Truncated(uint64_t wanted) const {
  return Malformed(absl::StrCat(wanted, " bytes are wanted, ",
                                bytes_.size() - at_, " are left"));
}

absl::Status Machine::TakeLine(absl::string_view& line) {
  const absl::string_view rest = AsText(bytes_.subspan(at_));
  const size_t end = rest.find('\n');
  if (end == absl::string_view::npos) return Malformed("a line does not end");
  line = rest.substr(0, end);
  at_ += end + 1;
  return absl::OkStatus();
}

template <typename T>
absl::Status Machine::TakeNumber(uint64_t& number) {
  if (bytes_.size() - at_ < sizeof(T)) return Truncated(sizeof(T));
  number = static_cast<uint64_t>(LoadLittleEndian<T>(bytes_.data() + at_));
  at_ += sizeof(T);
  return absl::OkStatus();
}

absl::Status Machine::Need(size_t count) const {
  if (stack_.size() - floor_ < count) {
    return Malformed("too few values on the stack");
  }
  return absl::OkStatus();
}

// Removes the last mark; the values pushed since then begin at `first`.
absl::Status Machine::PopMark(size_t& first) {
  if (marks_.empty()) return Malformed("there is no mark");
  first = marks_.back();
  marks_.pop_back();
  floor_ = marks_.empty() ? 0 : marks_.back();
  return absl::OkStatus();
}

absl::Status Machine::PushStr(uint64_t length) {
  absl::string_view text;
  DCP_RETURN_IF_ERROR(Take(length, text));
  if (length > kMaxMetadataBytes) return Malformed("a str is too long");
  if (!IsPickleUtf8(text)) return Malformed("a str is not UTF-8");
  Push(arena_.Str(text));
  return absl::OkStatus();
}

absl::Status Machine::PushOldStr(uint64_t length) {
  if (length > uint64_t{std::numeric_limits<int32_t>::max()}) {
    return Malformed("a str has a negative length");
  }
  return PushStr(length);
}

absl::Status Machine::PushInt(absl::string_view little_endian) {
  if (little_endian.size() > kMaxPickleIntBytes) {
    return Malformed(absl::StrCat("an int of ", little_endian.size(),
                                  " bytes exceeds ", kMaxPickleIntBytes));
  }
  little_endian = ShortestInt(little_endian);
  if (little_endian.size() > sizeof(int64_t)) {
    Push(arena_.BigInt(little_endian));
    return absl::OkStatus();
  }
  uint64_t bits = 0;
  std::memcpy(&bits, little_endian.data(), little_endian.size());
  const bool negative = !little_endian.empty() &&
                        (static_cast<uint8_t>(little_endian.back()) & 0x80);
  if (negative && little_endian.size() < sizeof(bits)) {
    bits |= ~uint64_t{0} << (8 * little_endian.size());
  }
  Push(Value::Int(static_cast<int64_t>(bits)));
  return absl::OkStatus();
}

absl::Status Machine::PushTuple(size_t count) {
  DCP_RETURN_IF_ERROR(Need(count));
  const Value tuple = arena_.Tuple(From(stack_.size() - count));
  Pop(count);
  Push(tuple);
  return absl::OkStatus();
}

absl::Status Machine::Put(uint64_t slot) {
  DCP_RETURN_IF_ERROR(Need(1));
  return memo_.Put(slot, Top());
}

absl::Status Machine::Get(uint64_t slot) {
  DCP_ASSIGN_OR_RETURN(const Value value, memo_.Get(slot));
  Push(value);
  return absl::OkStatus();
}

absl::Status Machine::Extend(Value container,
                             absl::Span<const Value> elements) {
  if (!container.is(Kind::kList) && !container.is(Kind::kCall)) {
    return Malformed(absl::StrCat("elements for ", KindName(container.kind())));
  }
  arena_.Extend(container, elements);
  return absl::OkStatus();
}

absl::Status Machine::CheckKeys(absl::Span<const Value> items) const {
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Kind::kList) || items[i].is(Kind::kDict)) {
      return Malformed(
          absl::StrCat(KindName(items[i].kind()), " is a key of a dict"));
    }
  }
  return absl::OkStatus();
}

absl::Status Machine::Update(Value container, absl::Span<const Value> items) {
  if (!container.is(Kind::kDict) && !container.is(Kind::kCall)) {
    return Malformed(absl::StrCat("items for ", KindName(container.kind())));
  }
  if (items.size() % 2 != 0) return Malformed("a key without a value");
  DCP_RETURN_IF_ERROR(CheckKeys(items));
  arena_.Update(container, items);
  return absl::OkStatus();
}

// Adds to a set, which is represented as a call with one list.
absl::Status Machine::AddItems() {
  size_t first = 0;
  DCP_RETURN_IF_ERROR(PopMark(first));
  const size_t count = stack_.size() - first;
  DCP_RETURN_IF_ERROR(Need(count + 1));
  const Value set = Top(count);
  if (!set.IsCallOf("builtins", "set") || set.args().items().size() != 1 ||
      !set.args().items()[0].is(Kind::kList)) {
    return Malformed("ADDITEMS to what is no set");
  }
  DCP_RETURN_IF_ERROR(Extend(set.args().items()[0], From(first)));
  Pop(count);
  return absl::OkStatus();
}

absl::StatusOr<Value> Machine::MakeGlobal(GlobalName global) {
  global = ModernName(global);
  const bool known = options_.allow_global(global.module, global.name);
  const bool kept = options_.keep_unknown_globals &&
                    !IsCodeGlobal(global.module, global.name);
  if ((!known && !kept) || !IsPlainName(global.module) ||
      !IsPlainName(global.name)) {
    return absl::PermissionDeniedError(
        absl::StrCat("global ", Quoted(global.module), ".", Quoted(global.name),
                     " is not allowed"));
  }
  has_unknown_globals_ |= !known;
  return arena_.Global(global.module, global.name);
}

absl::Status Machine::PushGlobal(GlobalName global) {
  DCP_ASSIGN_OR_RETURN(const Value value, MakeGlobal(global));
  Push(value);
  return absl::OkStatus();
}

// builtins.`name`(argument).
absl::Status Machine::PushCallOf(absl::string_view name, Value argument) {
  DCP_ASSIGN_OR_RETURN(const Value callable, MakeGlobal({"builtins", name}));
  Push(arena_.Call(callable, arena_.Tuple({argument})));
  return absl::OkStatus();
}

absl::Status Machine::Reduce(bool is_new) {
  DCP_RETURN_IF_ERROR(Need(2));
  DCP_ASSIGN_OR_RETURN(const Value call, MakeCall(Top(1), Top(), is_new));
  Pop(2);
  Push(call);
  ReplaceTop();
  return absl::OkStatus();
}

// Lets the caller replace the object on top of the stack.
void Machine::ReplaceTop() {
  if (!options_.replace.has_value() || !Top().is(Kind::kCall)) return;
  const std::optional<Value> other = (*options_.replace)(Top());
  if (!other.has_value()) return;
  Top() = *other;
  if (arena_.num_bytes() < collect_at_) return;
  arena_.KeepOnly({absl::MakeSpan(stack_), memo_.held()});
  collect_at_ = arena_.num_bytes() + slack_;
}

absl::Status Machine::NewObjEx() {
  DCP_RETURN_IF_ERROR(Need(3));
  if (!Top().is(Kind::kDict)) return Malformed("NEWOBJ_EX without a dict");
  if (!Top().items().empty()) {
    if (!IsUnknown(Top(2))) {
      return Malformed("NEWOBJ_EX with keyword arguments");
    }
    Top(1) = arena_.Tuple({Top(1), Top()});
  }
  Pop(1);
  return Reduce(/*is_new=*/true);
}

absl::StatusOr<Value> Machine::MakeCall(Value callable, Value args,
                                        bool is_new) {
  // Calling the result of an unknown function has an unknown result.
  if (callable.is(Kind::kCall) && IsUnknown(callable.callable())) {
    return arena_.Call(callable.callable(), arena_.Tuple({callable, args}));
  }
  if (!callable.is(Kind::kGlobal)) {
    return Malformed(
        absl::StrCat(KindName(callable.kind()), " cannot be called"));
  }
  if (!args.is(Kind::kTuple)) {
    return Malformed(absl::StrCat("the arguments are ", KindName(args.kind())));
  }
  const absl::Span<const Value> items = args.items();
  if (callable.IsGlobal("_codecs", "encode")) return MakeBytes(items);
  if (callable.IsGlobal("builtins", "getattr") && !IsUnknown(callable)) {
    return MakeEnum(items);
  }
  if (callable.IsGlobal("builtins", "bytes") && items.empty()) {
    return arena_.Bytes("");
  }
  DCP_RETURN_IF_ERROR(CheckArguments(callable, items));
  // In Python 2 an OrderedDict gets its items as a list of pairs; Counter still
  // gets a dict.
  const bool counter = callable.IsGlobal("collections", "Counter");
  if (counter && items.size() == 1 && items[0].is(Kind::kDict)) {
    const Value call = arena_.Call(callable, arena_.Tuple({}));
    arena_.Update(call, items[0].items());
    return call;
  }
  const bool ordered = callable.IsGlobal("collections", "OrderedDict");
  if (ordered && items.size() == 1 && items[0].is(Kind::kList)) {
    const Value call = arena_.Call(callable, arena_.Tuple({}));
    for (const Value& pair : items[0].items()) {
      if ((!pair.is(Kind::kList) && !pair.is(Kind::kTuple)) ||
          pair.items().size() != 2) {
        return Malformed("OrderedDict of what are no pairs");
      }
      DCP_RETURN_IF_ERROR(CheckKeys(pair.items()));
      arena_.Update(call, pair.items());
    }
    return call;
  }
  return is_new ? arena_.New(callable, args) : arena_.Call(callable, args);
}

// Arguments that are harmless here must also be harmless for the Python that
// reads our output: an integer would make a buffer of that size, and an object
// array is itself a pickle.
absl::Status Machine::CheckArguments(Value callable,
                                     absl::Span<const Value> args) const {
  if (args.empty()) return absl::OkStatus();
  const Value& first = args[0];
  const bool number = first.is(Kind::kInt) || first.is(Kind::kBigInt);
  if (number && (callable.IsGlobal("builtins", "bytearray") ||
                 callable.IsGlobal("builtins", "bytes"))) {
    return Malformed("a buffer made of its length");
  }
  const bool text = first.is(Kind::kStr) || first.is(Kind::kBytes);
  if (!text) return absl::OkStatus();
  // With an exponent, a short text would make a number with very many digits.
  if (callable.IsGlobal("fractions", "Fraction") &&
      first.text().find_first_not_of("+-0123456789/") !=
          absl::string_view::npos) {
    return Malformed("a Fraction that is not of two integers");
  }
  if (callable.IsGlobal("builtins", "int") &&
      first.text().size() > kMaxPickleIntBytes) {
    return Malformed(
        absl::StrCat("an int of ", first.text().size(), " digits"));
  }
  if (callable.IsGlobal("numpy", "dtype") &&
      absl::StartsWith(absl::StripPrefix(first.text(), "|"), "O")) {
    return absl::PermissionDeniedError("numpy objects are not allowed");
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Machine::MakeBytes(absl::Span<const Value> args) {
  if (args.size() != 2 || !args[0].is(Kind::kStr) || !args[1].is(Kind::kStr)) {
    return Malformed("_codecs.encode wants a str and a codec");
  }
  if (args[1].text() != "latin1") {
    return absl::PermissionDeniedError(absl::StrCat(
        "_codecs.encode to ", Quoted(args[1].text()), " is not allowed"));
  }
  const std::optional<std::string> bytes = Latin1FromUtf8(args[0].text());
  if (!bytes.has_value()) return Malformed("a str does not fit latin1");
  return arena_.Bytes(*bytes);
}

// Makes an enum member, which Python 3.11.0 to 3.11.3 pickled by name.
absl::StatusOr<Value> Machine::MakeEnum(absl::Span<const Value> args) {
  constexpr absl::string_view kMembers[] = {"TORCH_CONTIGUOUS_FORMAT",
                                            "TORCH_CHANNELS_LAST",
                                            "TORCH_PRESERVE_FORMAT"};
  if (args.size() == 2 && args[1].is(Kind::kStr) &&
      args[0].IsGlobal(kMetadataModule, "_MEM_FORMAT_ENCODING")) {
    for (size_t i = 0; i < std::size(kMembers); ++i) {
      if (args[1].text() != kMembers[i]) continue;
      return arena_.Call(args[0],
                         arena_.Tuple({Value::Int(static_cast<int64_t>(i))}));
    }
  }
  return absl::PermissionDeniedError(
      "global builtins.getattr is not allowed but for members of "
      "_MEM_FORMAT_ENCODING");
}

absl::Status Machine::Build() {
  DCP_RETURN_IF_ERROR(Need(2));
  const Value object = Top(1);
  if (!object.is(Kind::kCall)) {
    return Malformed(
        absl::StrCat("BUILD gives a state to ", KindName(object.kind())));
  }
  if (!object.state().is_none()) return Malformed("BUILD of an object twice");
  arena_.SetState(object, Top());
  Pop(1);
  ReplaceTop();
  return absl::OkStatus();
}

absl::Status Machine::StepText(uint8_t opcode) {
  uint64_t length = 0;
  absl::string_view text;
  switch (opcode) {
    case 'X':  // BINUNICODE
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(length));
      return PushStr(length);
    case 0x8c:  // SHORT_BINUNICODE
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(length));
      return PushStr(length);
    case 0x8d:  // BINUNICODE8
      DCP_RETURN_IF_ERROR(TakeNumber<uint64_t>(length));
      return PushStr(length);
    case 'U':  // SHORT_BINSTRING, a str of Python 2
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(length));
      return PushOldStr(length);
    case 'T':  // BINSTRING
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(length));
      return PushOldStr(length);
    case 'C':  // SHORT_BINBYTES
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(length));
      break;
    case 'B':  // BINBYTES
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(length));
      break;
    default:  // BINBYTES8, BYTEARRAY8
      DCP_RETURN_IF_ERROR(TakeNumber<uint64_t>(length));
      break;
  }
  DCP_RETURN_IF_ERROR(Take(length, text));
  if (length > kMaxMetadataBytes) return Malformed("bytes are too long");
  const Value bytes = arena_.Bytes(text);
  if (opcode == 0x96) return PushCallOf("bytearray", bytes);
  Push(bytes);
  return absl::OkStatus();
}

// The opcodes of protocol 0 whose operand is a line of text.
absl::Status Machine::StepLine(uint8_t opcode) {
  absl::string_view line;
  DCP_RETURN_IF_ERROR(TakeLine(line));
  uint64_t index = 0;
  switch (opcode) {
    case 'I':  // INT; protocol 0 also uses it for True and False
      if (line == "00" || line == "01") {
        Push(Value::Bool(line == "01"));
        return absl::OkStatus();
      }
      [[fallthrough]];
    case 'L': {  // LONG
      if (opcode == 'L') line = absl::string_view(absl::StripSuffix(line, "L"));
      const std::optional<std::string> bytes = ParseDecimalInt(line);
      if (!bytes.has_value()) return Malformed("a line is no int");
      return PushInt(*bytes);
    }
    case 'F': {  // FLOAT
      double value;
      if (!absl::SimpleAtod(line, &value)) {
        return Malformed("a line is no float");
      }
      Push(Value::Float(value));
      return absl::OkStatus();
    }
    case 'S':    // STRING
    case 'V': {  // UNICODE
      const std::optional<std::string> text =
          opcode == 'S' ? ParseQuotedString(line) : ParseRawUnicode(line);
      if (!text.has_value() || !IsPickleUtf8(*text)) {
        return Malformed("a line is no str");
      }
      Push(arena_.Str(*text));
      return absl::OkStatus();
    }
    default:  // PUT, GET
      if (!absl::SimpleAtoi(line, &index)) return Malformed("a memo slot");
      return opcode == 'p' ? Put(index) : Get(index);
  }
}

absl::Status Machine::StepEmpty(uint8_t opcode) {
  switch (opcode) {
    case ']':
      Push(arena_.List());
      return absl::OkStatus();
    case '}':
      Push(arena_.Dict());
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
      DCP_RETURN_IF_ERROR(Need(2));
      DCP_RETURN_IF_ERROR(Extend(Top(1), From(stack_.size() - 1)));
      Pop(1);
      return absl::OkStatus();
    }
    case 's': {  // SETITEM
      DCP_RETURN_IF_ERROR(Need(3));
      DCP_RETURN_IF_ERROR(Update(Top(2), From(stack_.size() - 2)));
      Pop(2);
      return absl::OkStatus();
    }
    default:
      break;
  }
  DCP_RETURN_IF_ERROR(PopMark(first));
  const size_t count = stack_.size() - first;
  Value made;
  switch (opcode) {
    case 'e':  // APPENDS
      DCP_RETURN_IF_ERROR(Need(count + 1));
      DCP_RETURN_IF_ERROR(Extend(Top(count), From(first)));
      Pop(count);
      return absl::OkStatus();
    case 'u':  // SETITEMS
      DCP_RETURN_IF_ERROR(Need(count + 1));
      DCP_RETURN_IF_ERROR(Update(Top(count), From(first)));
      Pop(count);
      return absl::OkStatus();
    case 't':  // TUPLE
      made = arena_.Tuple(From(first));
      break;
    case 'd':  // DICT
      made = arena_.Dict();
      DCP_RETURN_IF_ERROR(Update(made, From(first)));
      break;
    default:  // LIST, FROZENSET
      made = arena_.List(From(first));
      break;
  }
  Pop(count);
  if (opcode == 0x91) return PushCallOf("frozenset", made);
  Push(made);
  return absl::OkStatus();
}

absl::Status Machine::StepMemo(uint8_t opcode) {
  uint64_t index = 0;
  switch (opcode) {
    case 0x94:  // MEMOIZE counts the slots in use
      DCP_RETURN_IF_ERROR(Need(1));
      return memo_.Put(Top());
    case 'q':  // BINPUT
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(index));
      return Put(index);
    case 'r':  // LONG_BINPUT
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(index));
      return Put(index);
    case 'h':  // BINGET
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(index));
      return Get(index);
    default:  // LONG_BINGET
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(index));
      return Get(index);
  }
}

absl::Status Machine::StepObject(uint8_t opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      GlobalName global;
      DCP_RETURN_IF_ERROR(TakeLine(global.module));
      DCP_RETURN_IF_ERROR(TakeLine(global.name));
      return PushGlobal(global);
    }
    case 0x93: {  // STACK_GLOBAL
      DCP_RETURN_IF_ERROR(Need(2));
      if (!Top(1).is(Kind::kStr) || !Top().is(Kind::kStr)) {
        return Malformed("the name of a global is no str");
      }
      const GlobalName global = {Top(1).text(), Top().text()};
      Pop(2);
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
      return PushCallOf("set", arena_.List());
    default: {  // BINPERSID
      DCP_RETURN_IF_ERROR(Need(1));
      if (!options_.allow_persistent_ids) {
        return Malformed("a persistent id is not allowed here");
      }
      Top() = arena_.Persistent(Top());
      return absl::OkStatus();
    }
  }
}

absl::Status Machine::StepStack(uint8_t opcode) {
  size_t first = 0;
  switch (opcode) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      floor_ = stack_.size();
      return absl::OkStatus();
    case '0':  // POP; pops a mark if no value is above it
      if (stack_.size() == floor_) return PopMark(first);
      Pop(1);
      return absl::OkStatus();
    case '1':  // POP_MARK
      DCP_RETURN_IF_ERROR(PopMark(first));
      Pop(stack_.size() - first);
      return absl::OkStatus();
    default: {  // DUP
      DCP_RETURN_IF_ERROR(Need(1));
      const Value top = Top();
      Push(top);
      return absl::OkStatus();
    }
  }
}

absl::Status Machine::StepScalar(uint8_t opcode) {
  uint64_t number = 0;
  absl::string_view text;
  switch (opcode) {
    case 'N':
      Push(Value());
      return absl::OkStatus();
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      Push(Value::Bool(opcode == 0x88));
      return absl::OkStatus();
    case 'K':  // BININT1
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(number));
      break;
    case 'M':  // BININT2
      DCP_RETURN_IF_ERROR(TakeNumber<uint16_t>(number));
      break;
    case 'J':  // BININT
      DCP_RETURN_IF_ERROR(TakeNumber<int32_t>(number));
      break;
    case 0x8a:  // LONG1
      DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(number));
      DCP_RETURN_IF_ERROR(Take(number, text));
      return PushInt(text);
    case 0x8b:  // LONG4; a negative length reads as too many bytes
      DCP_RETURN_IF_ERROR(TakeNumber<uint32_t>(number));
      DCP_RETURN_IF_ERROR(Take(number, text));
      return PushInt(text);
    default:  // BINFLOAT, big-endian
      DCP_RETURN_IF_ERROR(TakeNumber<uint64_t>(number));
      Push(Value::Float(std::bit_cast<double>(__builtin_bswap64(number))));
      return absl::OkStatus();
  }
  Push(Value::Int(static_cast<int64_t>(number)));
  return absl::OkStatus();
}

absl::Status Machine::StepFrame(uint8_t opcode) {
  uint64_t number = 0;
  if (opcode == 0x80) {  // PROTO
    DCP_RETURN_IF_ERROR(TakeNumber<uint8_t>(number));
    if (number > 5) return Malformed(absl::StrCat("protocol ", number));
    return absl::OkStatus();
  }
  // FRAME only tells Python how much to read at once.
  DCP_RETURN_IF_ERROR(TakeNumber<uint64_t>(number));
  if (number > bytes_.size() - at_) {
    return Malformed(absl::StrCat("a frame of ", number, " bytes, ",
                                  bytes_.size() - at_, " are left"));
  }
  return absl::OkStatus();
}

absl::Status Machine::Step(uint8_t opcode) {
  switch (kGroups[opcode]) {
    case Group::kStack:
      return StepStack(opcode);
    case Group::kScalar:
      return StepScalar(opcode);
    case Group::kText:
      return StepText(opcode);
    case Group::kMemo:
      return StepMemo(opcode);
    case Group::kEmpty:
      return StepEmpty(opcode);
    case Group::kContainer:
      return StepContainer(opcode);
    case Group::kObject:
      return StepObject(opcode);
    case Group::kLine:
      return StepLine(opcode);
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
    const size_t start = at_;
    absl::Status status;
    if (at_ == bytes_.size()) {
      status = Malformed("the end is missing");
    } else if (++num_opcodes > kMaxPickleValues) {
      status =
          Malformed(absl::StrCat("more than ", kMaxPickleValues, " opcodes"));
    } else if (const uint8_t opcode = bytes_[at_++]; opcode != '.') {
      status = Step(opcode);
    } else if (status = Need(1); status.ok()) {
      break;
    }
    if (!status.ok()) return Annotate(status, "pickle at byte ", start);
  }
  const uint64_t most = std::clamp(at_ * kMaxPickleValuesPerByte,
                                   kMinPickleValues, kMaxPickleValues);
  absl::StatusOr<uint64_t> expanded = arena_.Measure(Top(), most);
  if (!expanded.ok()) return Annotate(expanded.status(), "pickle");
  return PickleResult{.root = Top(),
                      .length = at_,
                      .expanded_values = *expanded,
                      .has_unknown_globals = has_unknown_globals_};
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
