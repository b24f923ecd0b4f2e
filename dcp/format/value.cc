#include "dcp/format/value.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/limits.h"

namespace dcp {

using Kind = Value::Kind;

// [Note: what stands before a container]
// Every container but kGlobal has 8 bytes before what its Value points to, in
// which Measure() keeps what it found out. Without them each walk over a
// graph with shared parts would need a hash table of all containers.
namespace {

struct Mark {
  static constexpr uint32_t kOpen = ~uint32_t{0};  // being walked
  uint32_t depth = 0;
  uint32_t size = 0;  // 0 while unknown; while open how far down it stands
};
static_assert(sizeof(Mark) == 8);

}  // namespace

struct Value::GlobalNode {
  absl::string_view module;
  absl::string_view name;

  bool Is(absl::string_view other_module, absl::string_view other_name) const {
    return name == other_name && module == other_module;
  }
};

struct Value::SequenceNode {
  Value* data = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  absl::Span<const Value> values() const { return {data, size}; }
};

struct Value::CallNode {
  GlobalNode* callable;
  Value args;
  Value state;
  bool is_new = false;
  // Most calls have neither items nor elements.
  struct Content {
    SequenceNode items;
    SequenceNode elements;
  };
  Content* content = nullptr;
};

Value Value::Bool(bool value) {
  Value v;
  v.kind_ = Kind::kBool;
  v.integer_ = value ? 1 : 0;
  return v;
}

Value Value::Int(int64_t value) {
  Value v;
  v.kind_ = Kind::kInt;
  v.integer_ = value;
  return v;
}

Value Value::Float(double value) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.real_ = value;
  return v;
}

bool Value::bool_value() const {
  DCP_CHECK(is(Kind::kBool), "it is ", KindName(kind_));
  return integer_ != 0;
}

int64_t Value::int_value() const {
  DCP_CHECK(is(Kind::kInt), "it is ", KindName(kind_));
  return integer_;
}

double Value::float_value() const {
  DCP_CHECK(is(Kind::kFloat), "it is ", KindName(kind_));
  return real_;
}

absl::string_view Value::text() const {
  DCP_CHECK(is(Kind::kStr) || is(Kind::kBytes) || is(Kind::kBigInt), "it is ",
            KindName(kind_));
  return {text_, length_};
}

absl::Span<const Value> Value::items() const {
  switch (kind_) {
    case Kind::kTuple:
      return {values_, length_};
    case Kind::kList:
    case Kind::kDict:
      return sequence_->values();
    case Kind::kCall:
      if (call_->content == nullptr) return {};
      return call_->content->items.values();
    default:
      DCP_CHECK(false, KindName(kind_), " has no items");
      return {};
  }
}

absl::string_view Value::module() const {
  DCP_CHECK(is(Kind::kGlobal), "it is ", KindName(kind_));
  return global_->module;
}

absl::string_view Value::name() const {
  DCP_CHECK(is(Kind::kGlobal), "it is ", KindName(kind_));
  return global_->name;
}

bool Value::IsGlobal(absl::string_view module, absl::string_view name) const {
  return is(Kind::kGlobal) && global_->Is(module, name);
}

Value Value::callable() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  Value v;
  v.kind_ = Kind::kGlobal;
  v.global_ = call_->callable;
  return v;
}

Value Value::args() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->args;
}

absl::Span<const Value> Value::elements() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  if (call_->content == nullptr) return {};
  return call_->content->elements.values();
}

Value Value::state() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->state;
}

bool Value::is_new() const {
  DCP_CHECK(is(Kind::kCall), "it is ", KindName(kind_));
  return call_->is_new;
}

bool Value::IsCallOf(absl::string_view module, absl::string_view name) const {
  return is(Kind::kCall) && call_->callable->Is(module, name);
}

Value Value::persistent_id() const {
  DCP_CHECK(is(Kind::kPersistent), "it is ", KindName(kind_));
  return *values_;
}

Value Value::enclosing() const {
  DCP_CHECK(is(Kind::kEnclosing), "it is ", KindName(kind_));
  Value v = *this;
  v.kind_ = Kind::kCall;
  return v;
}

const void* Value::identity() const {
  switch (kind_) {
    case Kind::kTuple:
    case Kind::kPersistent:
      return values_;
    case Kind::kList:
    case Kind::kDict:
      return sequence_;
    case Kind::kCall:
      return call_;
    default:
      return nullptr;
  }
}

struct ValueArena::Impl {
  // Blocks double in size up to the largest, so that a small pickle takes
  // little and a large one few allocations.
  static constexpr size_t kFirstBlockBytes = 4 << 10;
  static constexpr size_t kLastBlockBytes = 8 << 20;
  // Blocks from this size on are made of huge pages, where the kernel has
  // them: an index of 100,000 tensors touches 170 MB, and a third of the time
  // to read it went to page faults.
  static constexpr size_t kHugePageBytes = 2 << 20;

  struct FreeBlock {
    size_t alignment = 0;
    void operator()(char* block) const {
      ::operator delete(block, std::align_val_t(alignment));
    }
  };

  // `alignment` is at most that of operator new.
  char* Allocate(size_t bytes, size_t alignment) {
    const size_t skip =
        (0 - reinterpret_cast<uintptr_t>(next)) & (alignment - 1);
    if (static_cast<size_t>(end - next) >= bytes + skip) {
      char* result = next + skip;
      next = result + bytes;
      return result;
    }
    if (bytes > block_bytes / 4) return AddBlock(bytes);
    next = AddBlock(block_bytes);
    end = next + block_bytes;
    block_bytes = std::min(block_bytes * 2, kLastBlockBytes);
    char* result = next;
    next += bytes;
    return result;
  }

  char* AddBlock(size_t bytes) {
    const bool huge = bytes >= kHugePageBytes;
    const size_t alignment = huge ? kHugePageBytes : alignof(std::max_align_t);
    const size_t size = AlignUp(bytes, alignment);
    // Without memory this is for the program's new-handler, as all of it is.
    char* block =
        static_cast<char*>(::operator new(size, std::align_val_t(alignment)));
    // Only advice: without it the pages are small.
    if (huge) madvise(block, size, MADV_HUGEPAGE);
    blocks.emplace_back(block, FreeBlock{alignment});
    return block;
  }

  absl::string_view CopyText(absl::string_view text) {
    DCP_CHECK(text.size() <= kMaxMetadataBytes, "text of ", text.size());
    if (text.empty()) return absl::string_view("", 0);
    char* copy = Allocate(text.size(), 1);
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }

  // Room for a node or values, with a Mark before it.
  void* AllocateMarked(size_t bytes) {
    ++num_values;
    char* raw = Allocate(sizeof(Mark) + bytes, alignof(Value));
    new (raw) Mark();
    return raw + sizeof(Mark);
  }

  static Mark& MarkOf(const void* identity) {
    return *reinterpret_cast<Mark*>(
        const_cast<char*>(static_cast<const char*>(identity)) - sizeof(Mark));
  }

  // What a container holds, in stages of consecutive values: the order in which
  // a pickle is written. Nothing can refer to a call in its first.
  static constexpr int kNumStages = 4;
  static absl::Span<const Value> Parts(const Value& container, int stage);

  void Grow(Value::SequenceNode& sequence, size_t added, bool exactly);
  void AppendAll(Value::SequenceNode& sequence, absl::Span<const Value> added);

  std::vector<std::unique_ptr<char, FreeBlock>> blocks;
  char* next = nullptr;
  char* end = nullptr;
  size_t block_bytes = kFirstBlockBytes;
  uint64_t num_values = 0;
  // The keys' texts lie in the arena.
  absl::flat_hash_map<std::pair<absl::string_view, absl::string_view>,
                      Value::GlobalNode*>
      globals;
};
static_assert(alignof(Value) == sizeof(Mark));

absl::Span<const Value> ValueArena::Impl::Parts(const Value& container,
                                                int stage) {
  switch (container.kind_) {
    case Kind::kTuple:
      if (stage == 0) return {container.values_, container.length_};
      return {};
    case Kind::kPersistent:
      if (stage == 0) return {container.values_, 1};
      return {};
    case Kind::kList:
    case Kind::kDict:
      if (stage == 0) return container.sequence_->values();
      return {};
    case Kind::kCall: {
      const Value::CallNode& call = *container.call_;
      if (stage == 0) return {&call.args, 1};
      if (stage == 3) return {&call.state, 1};
      if (call.content == nullptr) return {};
      return stage == 1 ? call.content->items.values()
                        : call.content->elements.values();
    }
    default:
      return {};
  }
}

void ValueArena::Impl::Grow(Value::SequenceNode& sequence, size_t added,
                            bool exactly) {
  const size_t wanted = sequence.size + added;
  DCP_CHECK(wanted <= kMaxMetadataBytes, "container of ", wanted);
  if (wanted <= sequence.capacity) return;
  size_t capacity = wanted;
  if (!exactly || sequence.size > 0) {
    capacity = std::max(capacity, size_t{2} * sequence.capacity);
  }
  Value* data = reinterpret_cast<Value*>(
      Allocate(capacity * sizeof(Value), alignof(Value)));
  if (sequence.size > 0) {
    std::memcpy(static_cast<void*>(data), sequence.data,
                sequence.size * sizeof(Value));
  }
  sequence.data = data;
  sequence.capacity = static_cast<uint32_t>(capacity);
}

void ValueArena::Impl::AppendAll(Value::SequenceNode& sequence,
                                 absl::Span<const Value> added) {
  if (added.empty()) return;
  Grow(sequence, added.size(), /*exactly=*/added.size() > 2);
  std::memcpy(static_cast<void*>(sequence.data + sequence.size), added.data(),
              added.size() * sizeof(Value));
  sequence.size += static_cast<uint32_t>(added.size());
}

ValueArena::ValueArena() : impl_(std::make_unique<Impl>()) {}
ValueArena::~ValueArena() = default;
ValueArena::ValueArena(ValueArena&&) noexcept = default;
ValueArena& ValueArena::operator=(ValueArena&&) noexcept = default;

Value ValueArena::Str(absl::string_view text) {
  const absl::string_view copy = impl_->CopyText(text);
  Value v;
  v.kind_ = Kind::kStr;
  v.length_ = static_cast<uint32_t>(copy.size());
  v.text_ = copy.data();
  return v;
}

Value ValueArena::Bytes(absl::string_view bytes) {
  Value v = Str(bytes);
  v.kind_ = Kind::kBytes;
  return v;
}

Value ValueArena::BigInt(absl::string_view little_endian) {
  Value v = Str(little_endian);
  v.kind_ = Kind::kBigInt;
  return v;
}

Value ValueArena::Tuple(absl::Span<const Value> items) {
  DCP_CHECK(items.size() <= kMaxMetadataBytes, "tuple of ", items.size());
  Value v;
  v.kind_ = Kind::kTuple;
  v.values_ = nullptr;
  if (items.empty()) return v;
  v.length_ = static_cast<uint32_t>(items.size());
  v.values_ =
      static_cast<Value*>(impl_->AllocateMarked(items.size() * sizeof(Value)));
  std::memcpy(static_cast<void*>(v.values_), items.data(),
              items.size() * sizeof(Value));
  return v;
}

Value ValueArena::List(absl::Span<const Value> items) {
  Value v;
  v.kind_ = Kind::kList;
  v.sequence_ = new (impl_->AllocateMarked(sizeof(Value::SequenceNode)))
      Value::SequenceNode();
  impl_->AppendAll(*v.sequence_, items);
  return v;
}

Value ValueArena::Dict(absl::Span<const Value> keys_and_values) {
  DCP_CHECK(keys_and_values.size() % 2 == 0, "a key without a value");
  Value v = List(keys_and_values);
  v.kind_ = Kind::kDict;
  return v;
}

Value ValueArena::Global(absl::string_view module, absl::string_view name) {
  Value v;
  v.kind_ = Kind::kGlobal;
  if (auto it = impl_->globals.find({module, name});
      it != impl_->globals.end()) {
    v.global_ = it->second;
    return v;
  }
  ++impl_->num_values;
  v.global_ = new (impl_->Allocate(sizeof(Value::GlobalNode), alignof(Value)))
      Value::GlobalNode{impl_->CopyText(module), impl_->CopyText(name)};
  impl_->globals.emplace(std::pair(v.global_->module, v.global_->name),
                         v.global_);
  return v;
}

Value ValueArena::Call(Value callable, Value args) {
  DCP_CHECK(callable.is(Kind::kGlobal) && args.is(Kind::kTuple),
            KindName(callable.kind()), " called with ", KindName(args.kind()));
  Value v;
  v.kind_ = Kind::kCall;
  v.call_ =
      new (impl_->AllocateMarked(sizeof(Value::CallNode))) Value::CallNode{
          .callable = callable.global_, .args = args, .state = Value()};
  return v;
}

Value ValueArena::New(Value callable, Value args) {
  const Value v = Call(callable, args);
  v.call_->is_new = true;
  return v;
}

Value ValueArena::Enclosing(Value call) {
  DCP_CHECK(call.is(Kind::kCall), "it is ", KindName(call.kind()));
  call.kind_ = Kind::kEnclosing;
  return call;
}

Value ValueArena::Persistent(Value id) {
  Value v;
  v.kind_ = Kind::kPersistent;
  v.values_ = new (impl_->AllocateMarked(sizeof(Value))) Value(id);
  return v;
}

void ValueArena::Append(Value list_or_call, Value element) {
  Extend(list_or_call, absl::MakeConstSpan(&element, 1));
}

void ValueArena::SetItem(Value dict_or_call, Value key, Value value) {
  const Value item[] = {key, value};
  Update(dict_or_call, item);
}

void ValueArena::SetState(Value call, Value state) {
  DCP_CHECK(call.is(Kind::kCall), "it is ", KindName(call.kind()));
  call.call_->state = state;
}

void ValueArena::Extend(Value list_or_call, absl::Span<const Value> elements) {
  if (elements.empty()) return;
  if (list_or_call.is(Kind::kList)) {
    impl_->AppendAll(*list_or_call.sequence_, elements);
    return;
  }
  DCP_CHECK(list_or_call.is(Kind::kCall), KindName(list_or_call.kind()));
  auto*& content = list_or_call.call_->content;
  if (content == nullptr) {
    content = new (impl_->Allocate(sizeof(*content), alignof(Value)))
        Value::CallNode::Content();
  }
  impl_->AppendAll(content->elements, elements);
}

void ValueArena::Update(Value dict_or_call,
                        absl::Span<const Value> keys_and_values) {
  DCP_CHECK(keys_and_values.size() % 2 == 0, "a key without a value");
  if (keys_and_values.empty()) return;
  if (dict_or_call.is(Kind::kDict)) {
    impl_->AppendAll(*dict_or_call.sequence_, keys_and_values);
    return;
  }
  DCP_CHECK(dict_or_call.is(Kind::kCall), KindName(dict_or_call.kind()));
  auto*& content = dict_or_call.call_->content;
  if (content == nullptr) {
    content = new (impl_->Allocate(sizeof(*content), alignof(Value)))
        Value::CallNode::Content();
  }
  impl_->AppendAll(content->items, keys_and_values);
}

uint64_t ValueArena::num_values() const { return impl_->num_values; }

namespace {

// A container on the way from the root, and what is known of its parts.
struct Step {
  Value value;
  absl::Span<const Value> rest;  // of the parts of this stage
  int stage = 0;
  uint32_t depth = 0;
  uint64_t size = 1;
};

uint64_t LeafSize(const Value& value) {
  switch (value.kind()) {
    case Kind::kStr:
    case Kind::kBytes:
    case Kind::kBigInt:
      return 1 + value.text().size() / 16;
    default:
      return 1;
  }
}

absl::Status TooDeep() {
  return absl::DataLossError(
      absl::StrCat("values are nested deeper than ", kMaxPickleDepth));
}

}  // namespace

absl::StatusOr<uint64_t> ValueArena::Measure(Value root, uint64_t max_values) {
  DCP_CHECK(max_values < (uint64_t{1} << 31), "max_values ", max_values);
  if (root.identity() == nullptr) return LeafSize(root);
  std::vector<Step> steps = {{.value = root, .rest = Impl::Parts(root, 0)}};
  Impl::MarkOf(root.identity()) = {.depth = Mark::kOpen, .size = 0};
  while (true) {
    Step& step = steps.back();
    while (step.rest.empty() && ++step.stage < Impl::kNumStages) {
      step.rest = Impl::Parts(step.value, step.stage);
    }
    uint64_t size;
    uint32_t depth = 0;
    if (step.rest.empty()) {
      size = step.size;
      depth = step.depth + 1;
      Impl::MarkOf(step.value.identity()) = {
          .depth = depth, .size = static_cast<uint32_t>(size)};
      steps.pop_back();
      if (steps.empty()) return size;
    } else {
      const Value& slot = step.rest.front();
      const Value part = slot;
      step.rest.remove_prefix(1);
      if (part.identity() == nullptr) {
        size = LeafSize(part);
      } else {
        Mark& mark = Impl::MarkOf(part.identity());
        if (mark.depth == Mark::kOpen) {
          if (!part.is(Kind::kCall) || steps[mark.size].stage == 0) {
            return absl::DataLossError("a container contains itself");
          }
          // The slot lies in the arena.
          const_cast<Value&>(slot) = Enclosing(part);
          size = 1;
        } else if (mark.size == 0) {
          if (steps.size() >= kMaxPickleDepth) return TooDeep();
          mark = {.depth = Mark::kOpen,
                  .size = static_cast<uint32_t>(steps.size())};
          steps.push_back({.value = part, .rest = Impl::Parts(part, 0)});
          continue;
        } else {
          size = mark.size;
          depth = mark.depth;
        }
      }
    }
    Step& parent = steps.back();
    parent.size += size;
    parent.depth = std::max(parent.depth, depth);
    // What was walked before was not walked again: its depth counts here.
    if (steps.size() + depth > kMaxPickleDepth) return TooDeep();
    if (parent.size > max_values) {
      return absl::DataLossError(absl::StrCat(
          "shared parts expand to more than ", max_values, " values"));
    }
  }
}

namespace {

bool SameCallable(const Value& a, const Value& b) {
  return a.callable().name() == b.callable().name() &&
         a.callable().module() == b.callable().module();
}

bool AllEqual(absl::Span<const Value> a, absl::Span<const Value> b,
              bool exact) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [exact](const Value& x, const Value& y) {
                      return DeepEqual(x, y, exact);
                    });
}

bool IsOrdinaryDict(const Value& value) {
  return value.is(Kind::kDict) ||
         (value.IsCallOf("collections", "OrderedDict") &&
          value.args().items().empty() && value.elements().empty());
}

}  // namespace

bool DeepEqual(const Value& a, const Value& b, bool exact) {
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  if (!exact && IsOrdinaryDict(a) && IsOrdinaryDict(b)) {
    return AllEqual(a.items(), b.items(), exact);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.bool_value() == b.bool_value();
    case Kind::kInt:
      return a.int_value() == b.int_value();
    case Kind::kFloat:
      return std::bit_cast<uint64_t>(a.float_value()) ==
             std::bit_cast<uint64_t>(b.float_value());
    case Kind::kBigInt:
    case Kind::kStr:
    case Kind::kBytes:
      return a.text() == b.text();
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
      return AllEqual(a.items(), b.items(), exact);
    case Kind::kGlobal:
      return a.IsGlobal(b.module(), b.name());
    case Kind::kCall:
      return SameCallable(a, b) && (!exact || a.is_new() == b.is_new()) &&
             DeepEqual(a.args(), b.args(), exact) &&
             AllEqual(a.items(), b.items(), exact) &&
             AllEqual(a.elements(), b.elements(), exact) &&
             DeepEqual(a.state(), b.state(), exact);
    case Kind::kPersistent:
      return DeepEqual(a.persistent_id(), b.persistent_id(), exact);
    case Kind::kEnclosing:
      return SameCallable(a.enclosing(), b.enclosing());
  }
  return false;
}

absl::string_view KindName(Value::Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kStr:
      return "a str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kGlobal:
      return "a global";
    case Kind::kCall:
      return "an object";
    case Kind::kPersistent:
      return "a persistent id";
    case Kind::kEnclosing:
      return "an enclosing object";
  }
  return "unknown";
}

bool IsAttributeDict(absl::string_view module, absl::string_view name) {
  return name == "AttributeDict" &&
         (module == "lightning.fabric.utilities.data" ||
          module == "lightning_fabric.utilities.data" ||
          module == "pytorch_lightning.utilities.parsing");
}

bool IsMapping(const Value& value) {
  if (value.is(Kind::kDict)) return true;
  if (!value.is(Kind::kCall)) return false;
  const Value callable = value.callable();
  return callable.IsGlobal("collections", "OrderedDict") ||
         callable.IsGlobal("collections", "defaultdict") ||
         callable.IsGlobal("collections", "Counter") ||
         IsAttributeDict(callable.module(), callable.name());
}

}  // namespace dcp
