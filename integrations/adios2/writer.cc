// The writer stores what a program puts in a step as objects of a pool.
//
// Blocks of one shape are columns of a table, (stepN, rankR.table); a block of several dimensions whose shape no other
// block has is plain bytes, (stepN, rankR.array.NAME). The rest is in (stepN, rankR.about), which appears when all
// ranks have ended the step; readers look for it first.
#include <algorithm>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <offpath/offpath.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "about.h"
#include "arena.h"
#include "box.h"
#include "engine.h"
#include "selection_of.h"

namespace offpath::adios {
namespace {

using ::adios2::Mode;
using ::adios2::StepMode;
using ::adios2::StepStatus;
using ::adios2::Variable;

constexpr std::size_t tables_max = 32;           // streams of tables that are open at a time
constexpr std::size_t table_columns_max = 1024;  // of one table
constexpr std::size_t drops_max = 16;            // of old steps, under way
constexpr std::uint32_t rows_growth_percent = 25;
// A step of at most so much is copied. The wait for its pull would take longer: the agent has to wake, and reads the
// pages of another process.
constexpr std::size_t copied_bytes_max = 256 << 10;

// A block that waits for PerformPuts or EndStep.
struct Pending {
  std::size_t variable;  // of the step's description
  std::size_t block;
  const std::byte* data;
  std::size_t elements;
  bool is_copied;  // `data` lies in the arena
};

// The stream of one set of columns.
struct Table {
  std::optional<Stream> stream;
  std::uint64_t rows_max = 0;
  Ticket last = 0;
  std::uint64_t used_in = 0;  // the newest step that has it
};

// Memory of steps, and the newest send of each stream that may still be pulled from it or from the program's arrays.
struct Slot {
  explicit Slot(const Channel& channel) : arena(channel) {}
  Arena arena;
  std::map<Stream*, Ticket> sent{};
};

// The time limit of this thread's sends while this engine sends; the program's own sends wait forever, as by default.
class SendWait {
 public:
  explicit SendWait(Wait wait) { Stream::wait_to_send(wait); }
  ~SendWait() { Stream::wait_to_send(forever); }
  SendWait(const SendWait&) = delete;
  SendWait& operator=(const SendWait&) = delete;
};

class Writer final : public ::adios2::plugin::PluginEngineInterface {
 public:
  Writer(::adios2::IO io, const std::string& name, Mode mode, Settings settings)
      : PluginEngineInterface(io, name, mode), settings_(std::move(settings)) {
    if (mode != Mode::Write)
      throw std::invalid_argument(
          "Offpath: a stream is opened with Mode::Write or Mode::Read; appending is not possible");
    unless_skipped("Open", [&] { open(); });
  }

  StepStatus BeginStep(StepMode /*mode*/, float /*timeout*/) override {
    if (in_step_) throw std::logic_error("Offpath: BeginStep without EndStep of step " + std::to_string(about_.step));
    begin();
    return StepStatus::OK;
  }
  void PerformPuts() override {
    if (!in_step_) return;
    unless_skipped("PerformPuts", [&] {
      send_pending();
      if (!is_step_copied()) wait_pulled();
    });
  }
  void EndStep() override {
    if (!in_step_) throw std::logic_error("Offpath: EndStep without BeginStep");
    in_step_ = false;
    unless_skipped("EndStep", [&] { end(); });
    ++about_.step;
  }
  [[nodiscard]] std::size_t CurrentStep() const override { return about_.step; }
  void DoClose(int /*transport*/) override {
    if (in_step_) EndStep();
    unless_skipped("Close", [&] { close(); });
    drops_.clear();
    tables_.clear();
    plain_.reset();
    slots_.clear();
    channel_.reset();
  }

#define OFFPATH_PUT(T)                                                                            \
  void DoPutSync(Variable<T> variable, const T* values) override { put(variable, values, true); } \
  void DoPutDeferred(Variable<T> variable, const T* values) override { put(variable, values, false); }
  ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_PUT)
#undef OFFPATH_PUT
#define OFFPATH_SPAN(T)                                                                          \
  void DoPut(Variable<T> variable, Variable<T>::Span& /*span*/, const bool, const T&) override { \
    refuse_span(variable.Name());                                                                \
  }
  ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(OFFPATH_SPAN)
#undef OFFPATH_SPAN

 private:
  // Throws errors of the agent with the names of the call and the step. With IfNoAgent=skip the program continues
  // without an agent.
  template <class Call>
  void unless_skipped(const char* call, const Call& make) {
    if (skipped_) return;
    const SendWait bounded(settings_.timeout);
    try {
      make();
    } catch (const Error& error) {
      const std::string said = std::string("Offpath: ") + call + ", step " + std::to_string(about_.step) + " of pool " +
                               settings_.pool + ": " + error.what();
      pending_.clear();
      const bool no_agent = !channel_ || error.code() == OFP_PEER_LOST;
      if (!settings_.skip || !no_agent) throw std::runtime_error(said);
      std::cerr << said << "; the program continues, and this and further steps are discarded (IfNoAgent=skip)\n";
      skipped_ = true;
    }
  }

  void open() {
    channel_.emplace(settings_.address);
    const std::string link = channel_->info().link;
    // Other links register memory with a device: an array that was freed, and another one at its place, would be read
    // from where the first one was.
    copies_ = settings_.snapshot || (link != "local" && link != "tcp");
    about_.rank = settings_.rank;
    about_.ranks = settings_.ranks;
    prefix_ = "rank" + std::to_string(settings_.rank) + ".";
    slots_.emplace_back(*channel_);
    slots_.emplace_back(*channel_);
    StreamOptions options;
    options.pool = settings_.pool;
    options.destination = "native";
    options.ranks = settings_.ranks;
    options.rank = settings_.rank;
    plain_.emplace(*channel_, stream_name("plain"), std::vector<Column>{}, options);
    // Drops old steps, as a file opened for writing loses its contents.
    channel_->drop(settings_.pool, {"step*", prefix_ + "*"});
  }

  [[nodiscard]] std::string stream_name(const std::string& what) const { return settings_.pool + " " + prefix_ + what; }

  void begin() {
    in_step_ = true;
    about_.variables.clear();
    about_.attributes.clear();
    known_.clear();
    tables_in_step_ = 0;
    step_bytes_ = 0;
  }

  // ---- puts

  [[noreturn]] static void refuse_span(const std::string& variable) {
    throw std::invalid_argument("Offpath: variable " + variable +
                                ": ADIOS2 gives engines of its plug-in interface no way to hand out a span; use "
                                "Put(variable, data)");
  }

  template <class T>
  void put(const Variable<T>& variable, const T* values, bool sync) {
    if (!in_step_) begin();
    if (!variable.Operations().empty())
      throw std::invalid_argument("Offpath: variable " + variable.Name() +
                                  " has operations, which this engine does not apply; remove them");
    const std::size_t index = about_variable(variable.Name(), type_of<T>(), variable.ShapeID());
    VariableAbout& about = about_.variables[index];
    if (about.is_value()) {
      about.blocks.resize(1);
      if constexpr (std::is_same_v<T, std::string>) {
        about.blocks[0].value.texts = {*values};
      } else {
        const auto* const bytes = reinterpret_cast<const std::byte*>(values);
        about.blocks[0].value.bytes.assign(bytes, bytes + sizeof(T));
      }
      return;
    }
    if constexpr (std::is_same_v<T, std::string>) {
      throw std::invalid_argument("Offpath: variable " + variable.Name() + " is an array of strings");
    } else {
      Block block;
      about.shape = about.kind == ShapeID::LocalArray ? Dims{} : variable.Shape();
      if (about.kind == ShapeID::GlobalArray) block.start = variable.Start();
      block.count = variable.Count();
      const std::size_t elements = elements_of(block.count);
      about.blocks.push_back(std::move(block));
      if (elements == 0 || skipped_) return;
      const auto* data = reinterpret_cast<const std::byte*>(values);
      unless_skipped("Put", [&] {
        const ::adios2::core::Selection selection = selection_of(variable);
        const bool is_copied = selection.HasMemorySelection() || sync || copies_;
        if (selection.HasMemorySelection())
          data = gathered(data, about.blocks.back().count, selection, sizeof(T));
        else if (is_copied)
          data = copied(data, elements * sizeof(T));
        pending_.push_back({index, about.blocks.size() - 1, data, elements, is_copied});
      });
    }
  }

  [[nodiscard]] std::size_t about_variable(const std::string& name, DataType type, ShapeID kind) {
    const auto [at, is_new] = known_.emplace(name, about_.variables.size());
    if (is_new) about_.variables.push_back({.name = name, .type = type, .kind = kind});
    return at->second;
  }

  [[nodiscard]] std::byte* copied(const void* data, std::size_t bytes) {
    std::byte* const at = slot().arena.take(bytes);
    std::memcpy(at, data, bytes);
    return at;
  }

  // Copies the selected elements of a larger array in memory side by side.
  [[nodiscard]] std::byte* gathered(const std::byte* data, const Dims& count,
                                    const ::adios2::core::Selection& selection, std::size_t element_bytes) {
    std::byte* const at = slot().arena.take(elements_of(count) * element_bytes);
    const Dims zeros(count.size(), 0);
    copy_common({zeros, count}, {selection.GetMemoryCount(), selection.GetMemoryStart()}, data, {zeros, count},
                {count, zeros}, at, element_bytes);
    return at;
  }

  // ---- steps

  // Whether all arrays of the step so far are sent from the arena.
  [[nodiscard]] bool is_step_copied() const { return settings_.snapshot || step_bytes_ <= copied_bytes_max; }

  [[nodiscard]] std::size_t bytes_of(const Pending& pending) const {
    return pending.elements * facts_of(about_.variables[pending.variable].type).bytes;
  }

  void send_pending() {
    for (const Pending& each : pending_) step_bytes_ += bytes_of(each);
    if (is_step_copied())
      for (Pending& each : pending_)
        if (!each.is_copied) each.data = copied(each.data, bytes_of(each));
    for (const std::vector<Pending>& group : groups()) {
      if (group.size() > 1 || block_of(group[0]).count.size() == 1)
        send_table(group);
      else
        send_plain(group[0]);
    }
    pending_.clear();
  }

  [[nodiscard]] Slot& slot() { return slots_[filled_]; }

  [[nodiscard]] Block& block_of(const Pending& pending) {
    return about_.variables[pending.variable].blocks[pending.block];
  }

  // Blocks of one shape together, in the order of their puts; a table has one block of each variable.
  [[nodiscard]] std::vector<std::vector<Pending>> groups() {
    std::vector<std::vector<Pending>> made;
    std::map<std::pair<Dims, std::size_t>, std::size_t> places;
    std::map<std::size_t, std::size_t> blocks;  // of each variable so far
    for (const Pending& each : pending_) {
      const auto place = places.emplace(std::pair{block_of(each).count, blocks[each.variable]++}, made.size()).first;
      if (place->second < made.size() && made[place->second].size() == table_columns_max) place->second = made.size();
      if (place->second == made.size()) made.emplace_back();
      made[place->second].push_back(each);
    }
    return made;
  }

  void send_table(const std::vector<Pending>& group) {
    std::vector<Column> columns;
    std::vector<const void*> data;
    std::string key;
    for (const Pending& each : group) {
      const VariableAbout& variable = about_.variables[each.variable];
      columns.push_back({variable.name, facts_of(variable.type).format});
      data.push_back(each.data);
      key += columns.back().name + '\0' + columns.back().format + '\0';
    }
    const std::string object = prefix_ + "table" + (tables_in_step_ == 0 ? "" : std::to_string(tables_in_step_));
    ++tables_in_step_;
    Table& table = table_of(key, columns, group[0].elements);
    slot().sent[&*table.stream] = table.last =
        table.stream->send(data, group[0].elements, {row_of(about_.step), object});
    for (const Pending& each : group) {
      block_of(each).object = object;
      block_of(each).column = about_.variables[each.variable].name;
    }
  }

  [[nodiscard]] Table& table_of(const std::string& key, const std::vector<Column>& columns, std::uint64_t rows) {
    const auto at = tables_.try_emplace(key).first;
    Table& table = at->second;
    table.used_in = about_.step;
    if (table.stream && rows <= table.rows_max) return table;
    if (table.stream) {
      const std::uint64_t rows_max = rows + rows * rows_growth_percent / 100;
      table.stream->grow(rows_max, settings_.timeout);
      table.rows_max = rows_max;
      return table;
    }
    StreamOptions options;
    options.pool = settings_.pool;
    options.rows_max = rows;
    if (tables_.size() > tables_max) {
      const auto oldest = std::ranges::min_element(
          tables_, {}, [&](const auto& each) { return &each.second == &table ? UINT64_MAX : each.second.used_in; });
      close(oldest->second);
      tables_.erase(oldest);
    }
    table.stream.emplace(*channel_, stream_name("table" + std::to_string(streams_opened_++)), columns, options);
    table.rows_max = options.rows_max;
    return table;
  }

  void close(Table& table) {
    if (!table.stream) return;
    table.stream->wait_stored(table.last, settings_.timeout);
    for (Slot& each : slots_) each.sent.erase(&*table.stream);
    table.stream->close(settings_.timeout);
    table.stream.reset();
  }

  void send_plain(const Pending& pending) {
    const VariableAbout& variable = about_.variables[pending.variable];
    Block& block = block_of(pending);
    block.object = prefix_ + "array." + variable.name;
    if (pending.block != 0) block.object += "." + std::to_string(pending.block);
    move(pending.data, bytes_of(pending), block.object);
  }

  void move(const void* data, std::uint64_t bytes, const std::string& column) {
    const ofp_piece piece{data, bytes, 0};
    slot().sent[&*plain_] = plain_->move({&piece, 1}, bytes, {row_of(about_.step), column});
  }

  void end() {
    send_pending();
    take_attributes();
    send_about();
    // The memory of the step before is filled next, while the agent pulls that of this one.
    if (is_step_copied()) {
      filled_ = 1 - filled_;
      expect_agent();
    }
    wait_pulled();
    slot().arena.reset();
    if (settings_.keep != 0 && about_.step >= settings_.keep) {
      finish_drops(drops_max - 1);
      drops_.push_back(channel_->start_drop(settings_.pool, {row_of(about_.step - settings_.keep), prefix_ + "*"},
                                            settings_.timeout));
    }
  }

  // Waits until at most `left` drops are under way.
  void finish_drops(std::size_t left) {
    while (drops_.size() > left && drops_.front().wait(settings_.timeout)) drops_.pop_front();
  }

  void send_about() {
    const std::string text = encoder_.encode(about_);
    move(copied(text.data(), text.size()), text.size(), prefix_ + "about");
    ended_ = slot().sent[&*plain_] = plain_->step_end(row_of(about_.step));
  }

  void wait_pulled() {
    for (const auto& [stream, ticket] : slot().sent) stream->wait_pulled(ticket, settings_.timeout);
    slot().sent.clear();
  }

  // Throws if the agent has died. The step before may have been pulled by then, so that a wait for it tells nothing.
  void expect_agent() {
    ofp_error error{};
    const int waited = ofp_wait_pulled(plain_->get(), ended_, 0, &error);
    if (waited != OFP_OK && waited != OFP_TIMEOUT) throw Error(error);
  }

  void take_attributes() {
    for (const auto& [name, facts] : m_IO.AvailableAttributes()) {
      const std::string type = m_IO.AttributeType(name);
#define OFFPATH_ATTRIBUTE(T)                        \
  if (type == ::adios2::GetType<T>()) {             \
    take_attribute(m_IO.InquireAttribute<T>(name)); \
    continue;                                       \
  }
      ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_ATTRIBUTE)
#undef OFFPATH_ATTRIBUTE
      throw std::invalid_argument("Offpath: attribute " + name + " of type " + type + " cannot be stored");
    }
  }

  template <class T>
  void take_attribute(const ::adios2::Attribute<T>& attribute) {
    AttributeAbout about{.name = attribute.Name(), .type = type_of<T>(), .single = attribute.IsValue()};
    const std::vector<T> data = attribute.Data();
    if constexpr (std::is_same_v<T, std::string>) {
      about.values.texts = data;
    } else {
      const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
      about.values.bytes.assign(bytes, bytes + data.size() * sizeof(T));
    }
    about_.attributes.push_back(std::move(about));
  }

  // Tells readers that no step follows the last one.
  void close() {
    begin();
    in_step_ = false;
    about_.end = true;
    send_about();
    plain_->wait_stored(ended_, settings_.timeout);
    for (auto& [key, table] : tables_) close(table);
    finish_drops(0);
    plain_->close(settings_.timeout);
  }

  Settings settings_;
  // Destroyed in the opposite order: everything else belongs to the channel.
  std::optional<Channel> channel_;
  std::deque<Slot> slots_;  // two
  std::size_t filled_ = 0;
  std::optional<Stream> plain_;
  Ticket ended_ = 0;                     // the newest end of a step
  std::map<std::string, Table> tables_;  // by names and types of columns
  std::deque<Request<std::uint64_t>> drops_;
  std::string prefix_;
  bool copies_ = false;
  bool skipped_ = false;
  bool in_step_ = false;
  About about_;
  Encoder encoder_;
  std::map<std::string, std::size_t> known_;  // variables of the step by name
  std::vector<Pending> pending_;
  std::size_t tables_in_step_ = 0;
  std::size_t step_bytes_ = 0;  // of its arrays that were sent
  std::uint64_t streams_opened_ = 0;
};

}  // namespace

std::unique_ptr<::adios2::plugin::PluginEngineInterface> make_writer(::adios2::IO io, const std::string& name,
                                                                     Mode mode, const Settings& settings) {
  return std::make_unique<Writer>(io, name, mode, settings);
}

}  // namespace offpath::adios
