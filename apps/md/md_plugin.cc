// What runs on the agent: lists and forces, by the host's own kernels. docs/md.md tells how to configure it.
#include <offpath/plugin.h>

#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "md/bins.h"
#include "md/neighbour_list.h"
#include "md/offloaded.h"

namespace md {
namespace {

template <class T>
struct Input {
  const T* data;
  std::size_t count;
};

template <class T>
Input<T> input(const ofp_context* context, std::string_view name) {
  for (std::uint64_t k = 0; k < context->input_count; ++k) {
    const ofp_input* one = context->inputs[k];
    if (std::string_view(static_cast<const char*>(one->column), one->column_bytes) != name) continue;
    return {static_cast<const T*>(one->data), one->bytes / sizeof(T)};
  }
  throw std::runtime_error("there is no input " + std::string(name));
}

template <class T>
T arguments(const ofp_context* context) {
  if (context->arguments_bytes != sizeof(T)) throw std::runtime_error("arguments of another size: program and plug-in differ in version");
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
  static NeighbourList made;  // keeps its memory from call to call
  build_list(bins, wanted.own, wanted.cut, wanted.half != 0, 1, choose_kernels("auto"), made);
  const NeighbourBlock& block = made.blocks[0];
  std::memcpy(output<std::uint64_t>(context, "begin", block.begin.size()), block.begin.data(), 8 * block.begin.size());
  std::memcpy(output<std::int32_t>(context, "mutual", block.mutual.size()), block.mutual.data(), 4 * block.mutual.size());
  std::memcpy(output<std::int32_t>(context, "neighbours", block.neighbours.size()), block.neighbours.data(), 4 * block.neighbours.size());
}

void forces(ofp_context* context) {
  const auto wanted = arguments<ForceArguments>(context);
  const auto x = input<double>(context, "x");
  const auto begin = input<std::uint64_t>(context, "begin");
  const auto mutual = input<std::int32_t>(context, "mutual"), neighbours = input<std::int32_t>(context, "neighbours");
  expect(x, values * wanted.all);
  expect(begin, wanted.own + 1);
  expect(mutual, wanted.own);
  expect(neighbours, wanted.neighbours);
  const PairList pairs{0, wanted.own, begin.data, mutual.data, neighbours.data};
  check_list(wanted, pairs);
  double* f = output<double>(context, "f", values * wanted.own);
  const PairSums sums = choose_kernels("auto").lj_with_sums(wanted.potential, pairs, x.data, f);
  std::memcpy(output<double>(context, "sums", 2), &sums, sizeof sums);
}

// Its inputs are pulled, and stay.
void hold(ofp_context* /*context*/) {}

template <void (*work)(ofp_context*)>
std::int32_t call(ofp_context* context) {
  try {
    work(context);
    return 0;
  } catch (const std::exception& error) {
    context->log(context, OFP_LOG_ERROR, error.what());
    return 1;
  }
}

const ofp_function functions[] = {{"list", call<list>, "Neighbour lists of a snapshot of positions."},
                                  {"forces", call<forces>, "Lennard-Jones forces with given lists."},
                                  {"hold", call<hold>, "Keeps its inputs for the next call."}};
const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "md", 3, functions};

}  // namespace
}  // namespace md

extern "C" OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &md::plugin; }
