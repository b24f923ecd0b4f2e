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
#include "dcp/format/value.h"
#include "dcp/format/value_nodes.h"

namespace dcp {

using Kind = Value::Kind;

// [Note: what stands before a container]
// Every container except kGlobal has 8 bytes before the address in its Value.
// Measure() stores its results there, and KeepOnly() the container's new
// address. Otherwise each walk over a graph with shared parts would need a hash
// table of all containers.
namespace {

struct Mark {
  static constexpr uint32_t kOpen = ~uint32_t{0};  // being walked
  uint32_t depth = 0;
  uint32_t size = 0;  // 0 while unknown; index in the walk while kOpen
};
static_assert(sizeof(Mark) == 8);

}  // namespace

struct ValueArena::Impl {
  // Block sizes double up to the largest, so that a small pickle uses little
  // memory and a large one few allocations.
  static constexpr size_t kFirstBlockBytes = 4 << 10;
  static constexpr size_t kLastBlockBytes = 8 << 20;
  // Blocks of at least this size use huge pages if the kernel provides them: an
  // index of 100,000 tensors uses 170 MB, and page faults took a third of the
  // time to read it.
  static constexpr size_t kHugePageBytes = 2 << 20;

  struct FreeBlock {
    size_t alignment = 0;
    void operator()(char* block) const {
      ::operator delete(block, std::align_val_t(alignment));
    }
  };

  // `alignment` must not exceed that of operator new.
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
    // If memory runs out, the program's new-handler is called, as for all
    // memory.
    char* block =
        static_cast<char*>(::operator new(size, std::align_val_t(alignment)));
    // Only advice; without it the pages are small.
    if (huge) madvise(block, size, MADV_HUGEPAGE);
    blocks.emplace_back(block, FreeBlock{alignment});
    num_bytes += size;
    return block;
  }

  absl::string_view CopyText(absl::string_view text) {
    DCP_CHECK(text.size() <= kMaxMetadataBytes, "text of ", text.size());
    if (text.empty()) return absl::string_view("", 0);
    char* copy = Allocate(text.size(), 1);
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }

  // Allocates a node or values, with a Mark before them.
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

  // A container's contents, in stages of consecutive values: the order in which
  // a pickle is written. Nothing in the first stage can refer to the call.
  static constexpr int kNumStages = 4;
  static absl::Span<const Value> Parts(const Value& container, int stage);

  Value::GlobalNode* GlobalOf(absl::string_view module, absl::string_view name);
  void Grow(Value::SequenceNode& sequence, size_t added, bool exactly);
  void AppendAll(Value::SequenceNode& sequence, absl::Span<const Value> added);

  std::vector<std::unique_ptr<char, FreeBlock>> blocks;
  char* next = nullptr;
  char* end = nullptr;
  size_t block_bytes = kFirstBlockBytes;
  uint64_t num_values = 0;
  size_t num_bytes = 0;
  // The texts of the keys are in the arena.
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

Value::GlobalNode* ValueArena::Impl::GlobalOf(absl::string_view module,
                                              absl::string_view name) {
  if (auto it = globals.find({module, name}); it != globals.end()) {
    return it->second;
  }
  ++num_values;
  auto* node = new (Allocate(sizeof(Value::GlobalNode), alignof(Value)))
      Value::GlobalNode{CopyText(module), CopyText(name)};
  globals.emplace(std::pair(node->module, node->name), node);
  return node;
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
  v.global_ = impl_->GlobalOf(module, name);
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

size_t ValueArena::num_bytes() const { return impl_->num_bytes; }

// Copies containers one by one. The contents of a copy still refer to the old
// arena until they are moved.
class ValueArena::Mover {
 public:
  explicit Mover(Impl& to) : to_(to) {}

  void MoveAll(absl::Span<Value> values) {
    open_.push_back(values);
    while (!open_.empty()) {
      const absl::Span<Value> next = open_.back();
      open_.pop_back();
      for (Value& value : next) Move(value);
    }
  }

 private:
  void Move(Value& value) {
    switch (value.kind_) {
      case Kind::kStr:
      case Kind::kBytes:
      case Kind::kBigInt:
        return MoveText(value);
      case Kind::kGlobal:
        value.global_ = to_.GlobalOf(value.module(), value.name());
        return;
      case Kind::kTuple:
        if (value.length_ > 0) value.values_ = Moved(value.values_, value);
        return;
      case Kind::kPersistent:
        value.values_ = Moved(value.values_, value);
        return;
      case Kind::kList:
      case Kind::kDict:
        value.sequence_ = Moved(value.sequence_, value);
        return;
      case Kind::kCall:
        value.call_ = Moved(value.call_, value);
        return;
      case Kind::kEnclosing:
        DCP_CHECK(false, "values were measured before they were moved");
        return;
      default:
        return;  // stored in the handle itself
    }
  }

  // Several handles may share a text, and texts have no Mark, so `texts_`
  // remembers the new addresses.
  void MoveText(Value& value) {
    const char*& moved = texts_[value.text_];
    if (moved == nullptr) moved = to_.CopyText(value.text()).data();
    value.text_ = moved;
  }

  // The new address of `node`. After the first call its Mark holds the address.
  template <typename Node>
  Node* Moved(Node* node, const Value& value) {
    Mark& mark = Impl::MarkOf(node);
    if (const auto address = std::bit_cast<uintptr_t>(mark); address != 0) {
      return reinterpret_cast<Node*>(address);
    }
    Node* const copy = CopyOf(node, value);
    mark = std::bit_cast<Mark>(reinterpret_cast<uintptr_t>(copy));
    return copy;
  }

  Value* CopyOf(const Value* values, const Value& value) {
    const size_t count = value.is(Kind::kTuple) ? value.length_ : 1;
    auto* copy = static_cast<Value*>(to_.AllocateMarked(count * sizeof(Value)));
    std::memcpy(static_cast<void*>(copy), values, count * sizeof(Value));
    open_.push_back({copy, count});
    return copy;
  }

  Value::SequenceNode* CopyOf(const Value::SequenceNode* node, const Value&) {
    auto* copy = new (to_.AllocateMarked(sizeof(*node))) Value::SequenceNode();
    CopySequence(*node, *copy);
    return copy;
  }

  Value::CallNode* CopyOf(const Value::CallNode* node, const Value&) {
    auto* copy = new (to_.AllocateMarked(sizeof(*node))) Value::CallNode(*node);
    copy->callable = to_.GlobalOf(node->callable->module, node->callable->name);
    open_.push_back({&copy->args, 1});
    open_.push_back({&copy->state, 1});
    if (node->content == nullptr) return copy;
    copy->content = new (to_.Allocate(sizeof(*node->content), alignof(Value)))
        Value::CallNode::Content();
    CopySequence(node->content->items, copy->content->items);
    CopySequence(node->content->elements, copy->content->elements);
    return copy;
  }

  void CopySequence(const Value::SequenceNode& from, Value::SequenceNode& to) {
    if (from.size == 0) return;
    to_.Grow(to, from.capacity, /*exactly=*/true);  // more may be appended
    std::memcpy(static_cast<void*>(to.data), from.data,
                from.size * sizeof(Value));
    to.size = from.size;
    open_.push_back({to.data, to.size});
  }

  Impl& to_;
  std::vector<absl::Span<Value>> open_;  // copies whose contents have not moved
  absl::flat_hash_map<const char*, const char*> texts_;
};

void ValueArena::KeepOnly(absl::Span<const absl::Span<Value>> roots) {
  auto kept = std::make_unique<Impl>();
  Mover mover(*kept);
  for (const absl::Span<Value> values : roots) mover.MoveAll(values);
  impl_ = std::move(kept);
}

namespace {

// A container on the path from the root, and what is known of its parts.
struct Step {
  Value value;
  absl::Span<const Value> rest;  // of the parts in this stage
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
          // The slot is in the arena, so it may be written.
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
    // A part that was measured before is not walked again, so its depth is
    // checked here.
    if (steps.size() + depth > kMaxPickleDepth) return TooDeep();
    if (parent.size > max_values) {
      return absl::DataLossError(absl::StrCat(
          "shared parts expand to more than ", max_values, " values"));
    }
  }
}

}  // namespace dcp
