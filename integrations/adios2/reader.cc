// The reader. The variables and attributes of a step come from its descriptions (about.h). Only the requested elements
// of arrays are copied, from the objects' pages into the program's memory.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <offpath/offpath.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "about.h"
#include "box.h"
#include "engine.h"
#include "selection_of.h"
#include "table.h"

namespace offpath::adios {
namespace {

using ::adios2::Mode;
using ::adios2::StepMode;
using ::adios2::StepStatus;
using ::adios2::Variable;
using ::adios2::core::Selection;
using Clock = std::chrono::steady_clock;

// How long the reader waits for a step before it looks whether that step has left the pool meanwhile.
constexpr std::chrono::nanoseconds look_again = std::chrono::seconds(1);

// An object of the step, and the columns of a table in it.
class Object {
 public:
  Object(Frame frame, const std::string& name) : frame_(std::move(frame)) {
    if (!frame_.is_arrow()) return;
    try {
      columns_ = read_table(frame_.bytes());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("Offpath: object " + name + " is not a table of this engine: " + error.what());
    }
  }
  // If `column` is empty, the object itself is the array.
  [[nodiscard]] std::optional<std::span<const std::byte>> bytes(const std::string& column) const {
    if (column.empty()) return frame_.is_arrow() ? std::nullopt : std::optional(frame_.bytes());
    const auto at = columns_.find(column);
    return at == columns_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  Frame frame_;
  std::map<std::string, std::span<const std::byte>, std::less<>> columns_;
};

class Reader final : public ::adios2::plugin::PluginEngineInterface {
 public:
  Reader(::adios2::IO io, const std::string& name, Mode mode, Settings settings)
      : PluginEngineInterface(io, name, mode), settings_(std::move(settings)) {
    named("Open", [&] { channel_.emplace(settings_.address); });
  }

  StepStatus BeginStep(StepMode mode, float timeout_s) override {
    if (mode != StepMode::Read) throw std::invalid_argument("Offpath: BeginStep of a reader takes StepMode::Read");
    if (in_step_) throw std::logic_error("Offpath: BeginStep without EndStep of step " + std::to_string(step_));
    if (ended_) return StepStatus::EndOfStream;
    return named("BeginStep", [&] { return begin(timeout_s); });
  }
  void EndStep() override {
    if (!in_step_) throw std::logic_error("Offpath: EndStep without BeginStep");
    in_step_ = false;
    objects_.clear();
    if (settings_.consume) named("EndStep", [&] { channel_->drop(settings_.pool, {row_of(step_), "*"}); });
    next_ = step_ + 1;
  }
  [[nodiscard]] std::size_t CurrentStep() const override { return step_; }
  [[nodiscard]] std::size_t Steps() const override { return next_; }
  [[nodiscard]] ::adios2::MinVarInfo* MinBlocksInfo(const std::string& name, std::size_t /*step*/) const override;
  void DoClose(int /*transport*/) override {
    objects_.clear();
    channel_.reset();
    in_step_ = false;
    ended_ = true;
  }

#define OFFPATH_GET(T)                                                                                               \
  void DoGetSync(Variable<T> variable, T* values) override { get(variable, values, selection_of(variable), false); } \
  void DoGetDeferred(Variable<T> variable, T* values) override {                                                     \
    get(variable, values, selection_of(variable), false);                                                            \
  }                                                                                                                  \
  void DoGetSync(Variable<T> variable, T* values, const Selection& selection) override {                             \
    get(variable, values, selection, true);                                                                          \
  }                                                                                                                  \
  void DoGetDeferred(Variable<T> variable, T* values, const Selection& selection) override {                         \
    get(variable, values, selection, true);                                                                          \
  }
  ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_GET)
#undef OFFPATH_GET

 private:
  // Errors of the agent under the name of the call.
  template <class Call>
  std::invoke_result_t<const Call&> named(const char* call, const Call& make) {
    try {
      return make();
    } catch (const Error& error) {
      throw std::runtime_error(std::string("Offpath: ") + call + ", step " + std::to_string(next_) + " of pool " +
                               settings_.pool + ": " + error.what());
    }
  }

  // ---- steps

  StepStatus begin(float timeout_s) {
    const bool for_ever = timeout_s < 0;
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(for_ever ? 0.0 : timeout_s));
    std::optional<Frame> first = get_if_there(next_, {});
    while (!first) {
      if (const auto later = oldest_step(); later && *later >= next_) {
        next_ = *later;  // steps before it have left the pool
        first = get_if_there(next_, {});
        continue;
      }
      const std::chrono::nanoseconds left =
          for_ever ? look_again : std::min<std::chrono::nanoseconds>(deadline - Clock::now(), look_again);
      if (left <= left.zero()) return StepStatus::NotReady;
      first = get_if_there(next_, left);
    }
    step_ = next_;
    std::vector<About> abouts;
    abouts.push_back(checked(*first, 0, 0));
    if (abouts[0].end) {
      ended_ = true;
      return StepStatus::EndOfStream;
    }
    for (std::uint32_t rank = 1; rank < abouts[0].ranks; ++rank)
      abouts.push_back(checked(channel_->get(settings_.pool, {row_of(step_), about_of(rank)}, settings_.timeout), rank,
                               abouts[0].ranks));
    take_variables(abouts);
    take_attributes(abouts);
    in_step_ = true;
    return StepStatus::OK;
  }

  // The description of the step's first rank, which appears when all ranks have ended the step.
  [[nodiscard]] std::optional<Frame> get_if_there(std::uint64_t step, std::chrono::nanoseconds wait) {
    try {
      return channel_->get(settings_.pool, {row_of(step), about_of(0)}, wait);
    } catch (const Error& error) {
      if (error.code() != OFP_TIMEOUT && error.code() != OFP_NOT_FOUND) throw;
      return std::nullopt;
    }
  }

  // The oldest step in the pool that is not behind this reader.
  [[nodiscard]] std::optional<std::uint64_t> oldest_step() {
    constexpr std::string_view prefix = "step";
    std::optional<std::uint64_t> oldest;
    std::vector<Entry> entries;
    try {
      entries = channel_->list(settings_.pool, {"step*", about_of(0)});
    } catch (const Error& error) {
      if (error.code() != OFP_NOT_FOUND) throw;  // the writer has not made the pool
    }
    for (const Entry& entry : entries) {
      const std::string& row = entry.key.row;
      std::uint64_t step = 0;
      const auto [stopped, error] = std::from_chars(row.data() + prefix.size(), row.data() + row.size(), step);
      if (error != std::errc{} || stopped != row.data() + row.size() || step < next_) continue;
      oldest = std::min(oldest.value_or(step), step);
    }
    return oldest;
  }

  [[nodiscard]] About checked(const Frame& frame, std::uint32_t rank, std::uint32_t ranks) const {
    About about;
    const std::string name = "object (" + row_of(step_) + ", " + about_of(rank) + ") of pool " + settings_.pool;
    try {
      about = decode(frame.bytes());
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("Offpath: " + name + " is " + error.what());
    }
    if (about.step != step_ || about.rank != rank || (ranks != 0 && about.ranks != ranks))
      throw std::runtime_error("Offpath: " + name + " describes step " + std::to_string(about.step) + ", rank " +
                               std::to_string(about.rank) + " of " + std::to_string(about.ranks));
    return about;
  }

  void take_variables(std::vector<About>& abouts) {
    std::map<std::string, VariableAbout> before = std::exchange(variables_, {});
    for (About& about : abouts)
      for (VariableAbout& each : about.variables) {
        for (Block& block : each.blocks) block.writer = about.rank;
        const auto [at, is_new] = variables_.try_emplace(each.name, std::move(each));
        if (is_new) continue;
        VariableAbout& known = at->second;
        if (known.type != each.type || known.kind != each.kind || known.shape.size() != each.shape.size())
          throw std::runtime_error("Offpath: the ranks have put variable " + at->first + " with different types");
        if (known.kind == ShapeID::GlobalArray && known.shape != each.shape)
          throw std::runtime_error("Offpath: the ranks have put variable " + at->first + " with shapes " +
                                   ::adios2::ToString(known.shape) + " and " + ::adios2::ToString(each.shape));
        std::ranges::move(each.blocks, std::back_inserter(known.blocks));
      }
    texts_.clear();
    for (auto& [name, variable] : variables_) {
      as_readers_see_it(variable);
      define(variable);
      if (variable.type == DataType::String)
        for (const Block& block : variable.blocks) texts_[name].push_back(block.value.texts[0].c_str());
    }
    for (const auto& [name, variable] : before)
      if (!variables_.contains(name)) m_IO.RemoveVariable(name);
  }

  // Local values form an array with one element from each block. Joined blocks follow one another.
  static void as_readers_see_it(VariableAbout& variable) {
    if (variable.kind == ShapeID::LocalValue) {
      variable.shape = {variable.blocks.size()};
    } else if (variable.kind == ShapeID::JoinedArray) {
      const auto joined =
          static_cast<std::size_t>(std::ranges::find(variable.shape, ::adios2::JoinedDim) - variable.shape.begin());
      if (joined == variable.shape.size())
        throw std::runtime_error("Offpath: joined array " + variable.name + " has no dimension to join");
      std::size_t length = 0;
      for (Block& block : variable.blocks) {
        block.start.assign(block.count.size(), 0);
        block.start[joined] = length;
        if (__builtin_add_overflow(length, block.count[joined], &length))
          throw std::runtime_error("Offpath: joined array " + variable.name + " is too long");
        for (std::size_t i = 0; i < block.count.size(); ++i)
          if (i != joined && block.count[i] != variable.shape[i])
            throw std::runtime_error("Offpath: a block of joined array " + variable.name + " has shape " +
                                     ::adios2::ToString(block.count));
      }
      variable.shape[joined] = length;
    }
  }

  void define(const VariableAbout& variable) {
    switch (variable.type) {
#define OFFPATH_DEFINE(T) \
  case type_of<T>():      \
    return define_as<T>(variable);
      ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_DEFINE)
#undef OFFPATH_DEFINE
      default:
        return;
    }
  }

  // Handles stay valid from step to step where the variable is the same; its selection is reset.
  template <class T>
  void define_as(const VariableAbout& about) {
    const bool is_array = about.kind != ShapeID::GlobalValue;
    const bool is_local = about.kind == ShapeID::LocalArray;
    const Dims shape = is_local ? Dims{} : about.shape;
    const Dims start = is_local || !is_array ? Dims{} : Dims(about.shape.size(), 0);
    const Dims count = is_local ? about.blocks[0].count : shape;
    if (const auto type = m_IO.InquireVariableType(about.name); type != DataType::None) {
      Variable<T> known = type == about.type ? m_IO.InquireVariable<T>(about.name) : Variable<T>{};
      const ShapeID expected = is_local ? ShapeID::LocalArray : is_array ? ShapeID::GlobalArray : ShapeID::GlobalValue;
      if (known && known.ShapeID() == expected && known.Shape().size() == shape.size() &&
          known.Count().size() == count.size()) {
        if (!is_array) return;
        if (!is_local) known.SetShape(shape);
        known.SetBlockSelection(0);
        known.SetMemorySelection();
        known.SetSelection({start, count});
        return;
      }
      m_IO.RemoveVariable(about.name);
    }
    m_IO.DefineVariable<T>(about.name, shape, start, count);
  }

  void take_attributes(const std::vector<About>& abouts) {
    std::map<std::string, AttributeAbout> now;
    for (const About& about : abouts)
      for (const AttributeAbout& each : about.attributes) now.try_emplace(each.name, each);
    for (const auto& [name, attribute] : attributes_)
      if (const auto at = now.find(name); at == now.end() || at->second != attribute) m_IO.RemoveAttribute(name);
    for (const auto& [name, attribute] : now)
      if (const auto at = attributes_.find(name); at == attributes_.end() || at->second != attribute)
        define_attribute(attribute);
    attributes_ = std::move(now);
  }

  void define_attribute(const AttributeAbout& attribute) {
    switch (attribute.type) {
#define OFFPATH_DEFINE(T) \
  case type_of<T>():      \
    return define_attribute_as<T>(attribute);
      ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_DEFINE)
#undef OFFPATH_DEFINE
      default:
        return;
    }
  }

  template <class T>
  void define_attribute_as(const AttributeAbout& attribute) {
    std::vector<T> values;
    if constexpr (std::is_same_v<T, std::string>) {
      values = attribute.values.texts;
    } else {
      values.resize(attribute.values.bytes.size() / sizeof(T));
      std::memcpy(values.data(), attribute.values.bytes.data(), attribute.values.bytes.size());
    }
    if (attribute.single)
      m_IO.DefineAttribute<T>(attribute.name, values[0]);
    else
      m_IO.DefineAttribute<T>(attribute.name, values.data(), values.size());
  }

  // ---- gets

  template <class T>
  void get(const Variable<T>& variable, T* values, const Selection& selection, bool by_selection) {
    if (!in_step_) throw std::logic_error("Offpath: Get of " + variable.Name() + " outside of BeginStep and EndStep");
    const auto found = variables_.find(variable.Name());
    if (found == variables_.end() || found->second.type != type_of<T>())
      throw std::invalid_argument("Offpath: step " + std::to_string(step_) + " has no variable " + variable.Name() +
                                  " of type " + variable.Type());
    const VariableAbout& about = found->second;
    if (selection.GetStepCount() != 1)
      throw std::invalid_argument("Offpath: variable " + about.name + ": a Get returns one step");
    if (about.is_value()) return get_values(about, values, selection);
    if constexpr (!std::is_same_v<T, std::string>) {
      const bool is_box = selection.GetSelectionType() == ::adios2::SelectionType::BoundingBox;
      auto* const target = reinterpret_cast<std::byte*>(values);
      named("Get", [&] {
        if (about.kind != ShapeID::LocalArray && (is_box || !selection.HasBlockSelection()))
          return get_box(about, target, selection, is_box);
        const Dims given = is_box                                      ? selection.GetCount()
                           : by_selection && !variable.Shape().empty() ? variable.Shape()
                                                                       : variable.Count();
        get_block(about, target, selection, is_box, elements_of(given));
      });
    }
  }

  template <class T>
  static void get_values(const VariableAbout& about, T* values, const Selection& selection) {
    std::size_t first = 0, count = about.kind == ShapeID::GlobalValue ? 1 : about.blocks.size();
    const std::size_t all = about.blocks.size();
    if (selection.GetSelectionType() == ::adios2::SelectionType::BoundingBox && about.kind == ShapeID::LocalValue) {
      first = selection.GetStart().at(0);
      count = selection.GetCount().at(0);
    } else if (selection.HasBlockSelection()) {
      first = selection.GetBlockID();
      count = 1;
    }
    if (first > all || count > all - first)
      throw std::invalid_argument("Offpath: variable " + about.name + " has " + std::to_string(all) +
                                  " values; asked for " + std::to_string(count) + " from " + std::to_string(first));
    for (std::size_t i = 0; i < count; ++i) {
      const Values& value = about.blocks[first + i].value;
      if constexpr (std::is_same_v<T, std::string>)
        values[i] = value.texts[0];
      else
        std::memcpy(&values[i], value.bytes.data(), sizeof(T));
    }
  }

  // The place of a box's elements in the program's memory.
  [[nodiscard]] static Layout target_layout(const Selection& selection, const Dims& count) {
    if (selection.HasMemorySelection()) return {selection.GetMemoryCount(), selection.GetMemoryStart()};
    return {count, Dims(count.size(), 0)};
  }

  // `is_box`: the selection has a box; otherwise it is the whole array.
  void get_box(const VariableAbout& about, std::byte* target, const Selection& selection, bool is_box) {
    Box box{Dims(about.shape.size(), 0), about.shape};
    if (is_box) box = {selection.GetStart(), selection.GetCount()};
    check_box(about, box, about.shape);
    const Layout to = target_layout(selection, box.count);
    for (const Block& block : about.blocks) {
      if (elements_of(block.count) == 0) continue;
      if (!overlap(block, box)) continue;
      copy_common({block.start, block.count}, {block.count, Dims(block.count.size(), 0)}, bytes_of(about, block).data(),
                  box, to, target, facts_of(about.type).bytes);
    }
  }

  [[nodiscard]] static bool overlap(const Block& block, const Box& box) {
    for (std::size_t i = 0; i < box.start.size(); ++i)
      if (block.start[i] >= box.start[i] + box.count[i] || box.start[i] >= block.start[i] + block.count[i])
        return false;
    return true;
  }

  static void check_box(const VariableAbout& about, const Box& box, const Dims& shape) {
    bool fits = box.start.size() == shape.size() && box.count.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i)
      fits = box.start[i] <= shape[i] && box.count[i] <= shape[i] - box.start[i];
    if (!fits)
      throw std::invalid_argument("Offpath: variable " + about.name + ": the box from " +
                                  ::adios2::ToString(box.start) + " of " + ::adios2::ToString(box.count) +
                                  " is not within the shape " + ::adios2::ToString(shape));
  }

  // A block, or a box in it, relative to its beginning. `given`: the number of elements that ADIOS2 takes the selection
  // to have; programs allocate by it.
  void get_block(const VariableAbout& about, std::byte* target, const Selection& selection, bool is_box,
                 std::size_t given) {
    const std::size_t number = selection.HasBlockSelection() ? selection.GetBlockID() : 0;
    if (number >= about.blocks.size())
      throw std::invalid_argument("Offpath: variable " + about.name + " has " + std::to_string(about.blocks.size()) +
                                  " blocks; asked for block " + std::to_string(number));
    const Block& block = about.blocks[number];
    const Dims zeros(block.count.size(), 0);
    Box box{zeros, block.count};
    if (is_box) box = {selection.GetStart(), selection.GetCount()};
    check_box(about, box, block.count);
    const std::size_t elements = elements_of(box.count);
    if (given != elements)
      throw std::invalid_argument(
          "Offpath: variable " + about.name + ", block " + std::to_string(number) + " has " + std::to_string(elements) +
          " elements, but the variable says " + std::to_string(given) +
          ", for ADIOS2 does not ask engines of its plug-in interface for the size of a block. Give the block's count "
          "(Engine::BlocksInfo) as well: SetSelection({start, count}) and then SetBlockSelection");
    if (elements == 0) return;
    copy_common({zeros, block.count}, {block.count, zeros}, bytes_of(about, block).data(), box,
                target_layout(selection, box.count), target, facts_of(about.type).bytes);
  }

  [[nodiscard]] std::span<const std::byte> bytes_of(const VariableAbout& about, const Block& block) {
    auto at = objects_.find(block.object);
    if (at == objects_.end()) {
      Frame frame = channel_->get(settings_.pool, {row_of(step_), block.object}, settings_.timeout);
      at = objects_.try_emplace(block.object, std::move(frame), block.object).first;
    }
    const auto bytes = at->second.bytes(block.column);
    if (!bytes || bytes->size() / facts_of(about.type).bytes < elements_of(block.count))
      throw std::runtime_error("Offpath: object (" + row_of(step_) + ", " + block.object + ") of pool " +
                               settings_.pool + " does not have " + std::to_string(elements_of(block.count)) +
                               " elements of variable " + about.name);
    return *bytes;
  }

  Settings settings_;
  std::optional<Channel> channel_;
  std::uint64_t next_ = 0, step_ = 0;
  bool in_step_ = false, ended_ = false;
  std::map<std::string, VariableAbout> variables_;
  std::map<std::string, std::vector<const char*>> texts_;  // of variables_, as ADIOS2 reads values of strings
  std::map<std::string, AttributeAbout> attributes_;
  std::map<std::string, Object> objects_;  // of the step, by column key
};

// ADIOS2 deletes it; what it points to lives until the next step. Of local values, which are an array here, it takes
// the pointers themselves as numbers.
::adios2::MinVarInfo* Reader::MinBlocksInfo(const std::string& name, std::size_t /*step*/) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return nullptr;
  const VariableAbout& about = found->second;
  const bool local_value = about.kind == ShapeID::LocalValue;
  const auto as_number = [](std::size_t number) { return reinterpret_cast<const std::size_t*>(number); };
  const std::size_t* shape = nullptr;
  if (local_value)
    shape = as_number(about.blocks.size());
  else if (about.kind == ShapeID::GlobalArray || about.kind == ShapeID::JoinedArray)
    shape = about.shape.data();
  const std::size_t dimensions = local_value ? 1 : about.blocks[0].count.size();
  auto info = std::make_unique<::adios2::MinVarInfo>(static_cast<int>(dimensions), shape);
  info->Step = step_;
  info->IsValue = about.kind == ShapeID::GlobalValue;
  info->WasLocalValue = local_value;
  for (std::size_t i = 0; i < about.blocks.size(); ++i) {
    const Block& block = about.blocks[i];
    ::adios2::MinBlockInfo each{};
    std::memset(&each.MinMax, 0, sizeof each.MinMax);
    each.WriterID = static_cast<int>(block.writer);
    each.BlockID = i;
    each.Start = local_value ? as_number(i) : block.start.data();
    each.Count = local_value ? as_number(1) : block.count.data();
    if (info->IsValue && about.type == DataType::String)
      each.BufferP = const_cast<const char**>(&texts_.at(name)[i]);
    else if (info->IsValue)
      each.BufferP = const_cast<std::byte*>(block.value.bytes.data());
    info->BlocksInfo.push_back(each);
  }
  return info.release();
}

}  // namespace

std::unique_ptr<::adios2::plugin::PluginEngineInterface> make_reader(::adios2::IO io, const std::string& name,
                                                                     Mode mode, const Settings& settings) {
  return std::make_unique<Reader>(io, name, mode, settings);
}

}  // namespace offpath::adios
