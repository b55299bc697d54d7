// The agent's plug-in: lists and forces, by the host's own kernels. docs/guides/md.md describes its configuration.
#include <offpath/plugin.h>

#include <cstring>
#include <exception>
#include <iterator>
#include <list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "md/neighbours/bins.h"
#include "md/neighbours/neighbour_list.h"
#include "md/offload/exchanged_forces.h"
#include "md/offload/lane_messages.h"
#include "md/offload/offloaded.h"
#include "md/offload/shared_forces.h"

namespace md {
namespace {

constexpr std::uint32_t parts_max = 4096;
constexpr std::size_t programs_max = 8;  // whose forces or lists stay with a worker between two tasks

template <class T>
struct Input {
  const T* data;
  std::size_t count;
};

std::string_view name_of(const ofp_input& one) { return {static_cast<const char*>(one.column), one.column_bytes}; }

template <class T>
Input<T> input(const ofp_context* context, const std::string& name) {
  for (std::uint64_t k = 0; k < context->input_count; ++k) {
    const ofp_input* one = context->inputs[k];
    if (name_of(*one) != name) continue;
    return {static_cast<const T*>(one->data), one->bytes / sizeof(T)};
  }
  throw std::runtime_error("there is no input " + name);
}

template <class T>
T arguments(const ofp_context* context) {
  if (context->arguments_bytes != sizeof(T))
    throw std::runtime_error("arguments of a different size: program and plug-in differ in version");
  T value;
  std::memcpy(&value, context->arguments, sizeof value);
  return value;
}

template <class T>
T* output(ofp_context* context, const char* name, std::size_t count) {
  void* memory = context->output(context, name, count * sizeof(T), 0);
  if (memory == nullptr) throw std::runtime_error(std::string("no room for output ") + name);
  return static_cast<T*>(memory);
}

template <class T>
void expect(const Input<T>& in, std::size_t count) {
  if (in.count < count) throw std::runtime_error("an input is shorter than its arguments say");
}

void list(ofp_context* context) {
  const auto wanted = arguments<ListArguments>(context);
  const auto x = input<double>(context, "x");
  const auto flat = input<std::uint32_t>(context, "bins");
  if (wanted.own > INT32_MAX || wanted.ghosts > INT32_MAX) throw std::runtime_error("more atoms than lists can name");
  expect(x, values * (wanted.own + wanted.ghosts));
  Bins bins = Bins::from_flat(flat.data, flat.count, wanted.own, wanted.ghosts);
  bins.refresh_positions(x.data, wanted.own, wanted.ghosts);
  static NeighbourList made;  // keeps its memory between calls
  if (wanted.parts < 1 || wanted.parts > parts_max)
    throw std::runtime_error("a list in " + std::to_string(wanted.parts) + " parts");
  build_list(bins, wanted.own, wanted.cut, wanted.half != 0, static_cast<int>(wanted.parts), choose_kernels("auto"),
             made, wanted.single != 0 ? Precision::mixed : Precision::whole);
  auto* const begin = output<std::uint64_t>(context, "begin", wanted.own + 1);
  auto* const mutual = output<std::int32_t>(context, "mutual", wanted.own);
  const std::uint64_t count = joined_neighbours(made);
  std::memcpy(output<std::uint64_t>(context, "count", 1), &count, sizeof count);
  if (count <= wanted.room) join_blocks(made, begin, mutual, output<std::int32_t>(context, "neighbours", count));
}

std::vector<PairList> blocks_of(const ofp_context* context, const ForceArguments& wanted) {
  if (wanted.own > wanted.all || wanted.all > INT32_MAX) throw std::runtime_error("more atoms than lists can name");
  if (wanted.threads < 1 || wanted.threads > parts_max)
    throw std::runtime_error("forces by " + std::to_string(wanted.threads) + " threads");
  std::vector<PairList> blocks;
  std::size_t atoms = 0;
  for (std::uint32_t b = 0; b < wanted.blocks; ++b) {
    const std::string number = std::to_string(b);
    const auto begin = input<std::uint64_t>(context, "begin" + number);
    const auto mutual = input<std::int32_t>(context, "mutual" + number),
               neighbours = input<std::int32_t>(context, "neighbours" + number);
    if (begin.count != mutual.count + 1 || mutual.count > wanted.own - atoms)
      throw std::runtime_error("a list of other atoms");
    blocks.push_back({atoms, atoms + mutual.count, begin.data, mutual.data, neighbours.data});
    atoms += mutual.count;
    check_list(blocks.back(), neighbours.count, wanted.all);
  }
  if (atoms != wanted.own || blocks.empty()) throw std::runtime_error("lists of too few atoms");
  return blocks;
}

void forces(ofp_context* context) {
  const auto wanted = arguments<ForceArguments>(context);
  const std::vector<PairList> blocks = blocks_of(context, wanted);
  const auto x = input<double>(context, "x");
  expect(x, values * wanted.all);
  double* f = output<double>(context, "f", values * wanted.own);
  static ForcesElsewhere computing;  // likewise
  const PairSums sums = computing.compute(wanted, blocks, x.data, f);
  std::memcpy(output<double>(context, "sums", 2), &sums, sizeof sums);
}

// Those of this program, the latest user first.
template <class Forces>
Forces& forces_of(std::uint64_t session) {
  struct Program {
    std::uint64_t session;
    Forces forces;
  };
  static std::list<Program> programs;
  auto found = programs.begin();
  while (found != programs.end() && found->session != session) ++found;
  if (found == programs.end()) {
    if (programs.size() == programs_max) programs.pop_back();
    programs.emplace_front().session = session;
  } else {
    programs.splice(programs.begin(), programs, found);
  }
  return programs.front().forces;
}

void share(ofp_context* context) {
  const auto wanted = arguments<ShareArguments>(context);
  if (wanted.first > wanted.own || wanted.own > wanted.all || wanted.all > INT32_MAX)
    throw std::runtime_error("a share of more atoms than there are, or than lists can name");
  if (wanted.threads < 1 || wanted.threads > parts_max || wanted.lists == 0)
    throw std::runtime_error("a share for " + std::to_string(wanted.threads) + " threads, with lists number " +
                             std::to_string(wanted.lists));
  const auto bins = input<std::uint32_t>(context, "bins of share");
  const auto listed = input<double>(context, "listed");
  expect(listed, values * wanted.all);
  Input<double> x = listed;
  for (std::uint64_t k = 0; k < context->input_count; ++k) {
    if (name_of(*context->inputs[k]) == "x") x = input<double>(context, "x");
  }
  expect(x, values * wanted.all);
  double* f = output<double>(context, "f", values * (wanted.own - wanted.first));
  const PairSums sums =
      forces_of<SharedForces>(context->session).compute(wanted, {bins.data, bins.count}, listed.data, x.data, f);
  std::memcpy(output<double>(context, "sums", 2), &sums, sizeof sums);
}

void exchanged_forces(ofp_context* context) {
  const auto wanted = arguments<ExchangeArguments>(context);
  const std::vector<PairList> blocks = blocks_of(context, wanted.forces);
  const auto x = input<double>(context, "x");
  expect(x, values * wanted.forces.own);
  LaneMessages messages(context);
  const auto flat = input<std::uint32_t>(context, "halo");
  HaloSwaps halo = HaloSwaps::from_flat(flat.data, flat.count, wanted.forces.own, wanted.forces.all, messages);
  const auto tables = wanted.eam != 0 ? input<double>(context, "tables") : Input<double>{nullptr, 0};
  const PairSums sums = forces_of<ExchangedForces>(context->session)
                            .compute(wanted, blocks, halo, x.data, {tables.data, tables.count}, messages);
  std::memcpy(output<double>(context, "sums", 2), &sums, sizeof sums);
}

void ordered_forces(ofp_context* context) {
  const auto places = input<Place>(context, "places");
  double* f = output<double>(context, "f", values * places.count);
  forces_of<ExchangedForces>(context->session)
      .put_in_order(arguments<OrderArguments>(context), {places.data, places.count}, f);
}

void meet(ofp_context* context) { LaneMessages(context).meet(); }

// Keeps its pulled inputs for later tasks.
void hold(ofp_context* /*context*/) {}

template <void (*work)(ofp_context*)>
std::int32_t call(ofp_context* context) {
  try {
    work(context);
    return 0;
  } catch (const MessageFailed&) {
    return 1;
  } catch (const std::exception& error) {
    context->log(context, OFP_LOG_ERROR, error.what());
    context->set_error(context, error.what());
    return 1;
  }
}

const ofp_function functions[] = {
    {"list", call<list>, "Neighbour lists of a snapshot of positions."},
    {"forces", call<forces>, "Lennard-Jones forces with given lists."},
    {"share", call<share>, "Forces of a rank's last atoms, with lists of its own."},
    {"hold", call<hold>, "Keeps its inputs for the next call."},
    {"meet", call<meet>, "Sends every lane of the team a message, and receives theirs."},
    {"exchanged_forces", call<exchanged_forces>,
     "Forces with a halo by messages between lanes; those of atoms that left follow."},
    {"ordered_forces", call<ordered_forces>, "These forces in the order in which the host has sorted its atoms."}};
const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "md", std::size(functions), functions};

}  // namespace
}  // namespace md

extern "C" OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &md::plugin; }
