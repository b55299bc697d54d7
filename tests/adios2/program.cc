// Writes and reads a stream with the engine that the XML file names, and prints every byte that it has read, so that
// the outputs of two engines can be compared.
//
//   adios2_program CONFIG STREAM write|read|span
#include <adios2.h>

#include <complex>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace {

constexpr std::size_t steps = 3;

template <class T>
T made(std::size_t i, std::size_t step) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    return {static_cast<typename T::value_type>(i) / 3, static_cast<typename T::value_type>(step) - 7};
  else
    return static_cast<T>(static_cast<T>(i * 7 + step * 13 + 1) / static_cast<T>(3));
}

template <class T>
std::vector<T> many(std::size_t n, std::size_t step) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = made<T>(i, step);
  return values;
}

// Each type as a scalar, in one dimension and in three; deferred values have to live until EndStep.
template <class T>
struct OfType {
  static constexpr bool is_char = std::is_same_v<T, char>;  // BP5 returns a single char as an int8_t
  explicit OfType(adios2::IO io, const std::string& type)
      : value(is_char ? adios2::Variable<T>() : io.DefineVariable<T>(type + "/value")),
        line(io.DefineVariable<T>(type + "/line", {30}, {0}, {30})),
        cube(io.DefineVariable<T>(type + "/cube", {4, 3, 5}, {0, 0, 0}, {4, 3, 5})) {
    const std::vector<T> list = many<T>(3, 1);
    io.DefineAttribute<T>(type + "/list", list.data(), list.size());
    io.DefineAttribute<T>(type + "/one", made<T>(5, 2));
  }
  void put(adios2::Engine& engine, std::size_t step) {
    deferred = many<T>(30 + step, step);
    line.SetShape({30 + step});  // rows grow
    line.SetSelection({{0}, {30 + step}});
    if (!is_char) engine.Put(value, made<T>(3, step));
    engine.Put(line, deferred.data());
    const std::vector<T> now = many<T>(60, step + 5);
    engine.Put(cube, now.data(), adios2::Mode::Sync);
  }
  adios2::Variable<T> value, line, cube;
  std::vector<T> deferred;
};

void write(adios2::IO io, const std::string& stream) {
  OfType<char> chars(io, "char");
  OfType<std::int8_t> int8(io, "int8");
  OfType<std::int16_t> int16(io, "int16");
  OfType<std::int32_t> int32(io, "int32");
  OfType<std::int64_t> int64(io, "int64");
  OfType<std::uint8_t> uint8(io, "uint8");
  OfType<std::uint16_t> uint16(io, "uint16");
  OfType<std::uint32_t> uint32(io, "uint32");
  OfType<std::uint64_t> uint64(io, "uint64");
  OfType<float> floats(io, "float");
  OfType<double> doubles(io, "double");
  OfType<long double> long_doubles(io, "long double");
  OfType<std::complex<float>> complex_floats(io, "float complex");
  OfType<std::complex<double>> complex_doubles(io, "double complex");
  auto text = io.DefineVariable<std::string>("text");
  const std::vector<std::string> words = {"a", "", "\xC3\xA4"};
  io.DefineAttribute<std::string>("words", words.data(), words.size());
  io.DefineAttribute<std::string>("unit", "m/s");
  io.DefineAttribute<std::string>("char/line/unit", "letters");

  auto ghosts = io.DefineVariable<double>("ghosts", {4, 6}, {0, 0}, {4, 6});
  auto blocks = io.DefineVariable<float>("blocks", {6, 4}, {0, 0}, {2, 4});
  auto local = io.DefineVariable<std::int32_t>("local", {}, {}, {5});
  auto joined = io.DefineVariable<double>("joined", {adios2::JoinedDim, 2}, {}, {3, 2});
  auto own = io.DefineVariable<double>("own", {adios2::LocalValueDim});
  auto empty = io.DefineVariable<double>("empty", {8}, {0}, {0});
  adios2::Engine engine = io.Open(stream, adios2::Mode::Write);
  for (std::size_t step = 0; step < steps; ++step) {
    engine.BeginStep();
    chars.put(engine, step);
    int8.put(engine, step);
    int16.put(engine, step);
    int32.put(engine, step);
    int64.put(engine, step);
    uint8.put(engine, step);
    uint16.put(engine, step);
    uint32.put(engine, step);
    uint64.put(engine, step);
    floats.put(engine, step);
    doubles.put(engine, step);
    long_doubles.put(engine, step);
    complex_floats.put(engine, step);
    complex_doubles.put(engine, step);
    engine.Put(text, "step " + std::to_string(step) + (step == 1 ? std::string(" \xFF\x01") : ""));
    engine.Put(own, 2.5 * static_cast<double>(step));

    const std::vector<double> field = many<double>(6 * 8, step);
    ghosts.SetMemorySelection({{1, 1}, {6, 8}});
    engine.Put(ghosts, field.data());
    std::vector<std::vector<float>> parts;
    for (std::size_t i = 0; i < 3; ++i) {  // several blocks of a variable, the first one alone in its flush
      parts.push_back(many<float>(8, step + i));
      blocks.SetSelection({{2 * i, 0}, {2, 4}});
      engine.Put(blocks, parts.back().data());
      if (i == 0) engine.PerformPuts();
    }
    std::vector<std::vector<std::int32_t>> locals = {many<std::int32_t>(5, step), many<std::int32_t>(5, step + 1)};
    for (const auto& each : locals) engine.Put(local, each.data());
    std::vector<std::vector<double>> joints = {many<double>(6, step), many<double>(4, step)};
    for (const auto& each : joints) {
      joined.SetSelection({{}, {each.size() / 2, 2}});
      engine.Put(joined, each.data());
    }
    if (step == 1) engine.Put(empty, field.data());
    engine.EndStep();
  }
  engine.Close();
}

template <class T>
void print(const T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      for (const char c : values[i]) std::printf("%02x", static_cast<unsigned char>(c));
      std::printf(";");
    } else {
      unsigned char bytes[sizeof(T)];
      std::memcpy(bytes, &values[i], sizeof(T));
      // The last six of the sixteen bytes of a long double have no meaning.
      for (std::size_t b = 0; b < (std::is_same_v<T, long double> ? 10 : sizeof(T)); ++b) std::printf("%02x", bytes[b]);
      std::printf(" ");
    }
  }
}

void print(const adios2::Dims& dims) {
  std::printf("{");
  for (const std::size_t each : dims) std::printf("%zu,", each);
  std::printf("} ");
}

template <class T>
void read(adios2::Engine& engine, adios2::Variable<T> variable) {
  std::printf("  %s %s ", variable.Name().c_str(), variable.Type().c_str());
  print(variable.Shape());
  const auto blocks = engine.BlocksInfo(variable, engine.CurrentStep());
  std::printf("blocks %zu: ", blocks.size());
  for (const auto& block : blocks) {
    print(block.Start);
    print(block.Count);
    if (block.IsValue && !std::is_same_v<T, std::string>) print(&block.Value, 1);
  }
  if constexpr (std::is_same_v<T, std::string>) {
    std::string value;
    engine.Get(variable, value, adios2::Mode::Sync);
    print(&value, 1);
  } else if (variable.ShapeID() == adios2::ShapeID::LocalArray) {
    for (const auto& block : blocks) {
      variable.SetBlockSelection(block.BlockID);
      std::vector<T> values;
      engine.Get(variable, values, adios2::Mode::Sync);
      print(values.data(), values.size());
    }
  } else if (variable.ShapeID() == adios2::ShapeID::GlobalArray) {
    std::vector<T> values;
    engine.Get(variable, values);
    engine.PerformGets();
    print(values.data(), values.size());
    std::printf("| ");  // all but the first and last of each dimension, into the middle of larger memory
    adios2::Dims start, count, memory;
    for (const std::size_t each : variable.Shape()) {
      if (each < 3) return static_cast<void>(std::printf("\n"));
      start.push_back(1);
      count.push_back(each - 2);
      memory.push_back(each);
    }
    variable.SetSelection({start, count});
    engine.Get(variable, values, adios2::Mode::Sync);
    print(values.data(), values.size());
    if (memory.size() == 1) return static_cast<void>(std::printf("\n"));  // BP5 ignores where in memory it should go
    std::printf("| ");
    std::vector<T> larger(std::accumulate(memory.begin(), memory.end(), std::size_t{1}, std::multiplies<>()));
    variable.SetMemorySelection({start, memory});
    engine.Get(variable, larger.data(), adios2::Mode::Sync);
    print(larger.data(), larger.size());
  } else {
    T value{};
    engine.Get(variable, value, adios2::Mode::Sync);
    print(&value, 1);
  }
  std::printf("\n");
}

template <class T>
void read_attribute(adios2::IO& io, const std::string& name) {
  const auto attribute = io.InquireAttribute<T>(name);
  const std::vector<T> values = attribute.Data();
  std::printf("  @%s %s %d: ", name.c_str(), attribute.Type().c_str(), attribute.IsValue());
  print(values.data(), values.size());
  std::printf("\n");
}

void read(adios2::IO io, const std::string& stream) {
  adios2::Engine engine = io.Open(stream, adios2::Mode::Read);
  while (engine.BeginStep(adios2::StepMode::Read, 30) == adios2::StepStatus::OK) {
    std::printf("step %zu\n", engine.CurrentStep());
    for (const auto& [name, facts] : io.AvailableVariables(true)) {
      const std::string type = io.VariableType(name);
#define READ(T) \
  if (type == adios2::GetType<T>()) read(engine, io.InquireVariable<T>(name));
      ADIOS2_FOREACH_STDTYPE_1ARG(READ)
#undef READ
    }
    for (const auto& [name, facts] : io.AvailableAttributes()) {
      const std::string type = io.AttributeType(name);
#define READ(T) \
  if (type == adios2::GetType<T>()) read_attribute<T>(io, name);
      ADIOS2_FOREACH_STDTYPE_1ARG(READ)
#undef READ
    }
    engine.EndStep();
  }
  engine.Close();
}

void put_span(adios2::IO io, const std::string& stream) {
  auto variable = io.DefineVariable<double>("x", {8}, {0}, {8});
  adios2::Engine engine = io.Open(stream, adios2::Mode::Write);
  engine.BeginStep();
  auto span = engine.Put(variable);
  std::printf("%p\n", static_cast<void*>(span.data()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[3];
  try {
    adios2::ADIOS adios(argv[1]);
    adios2::IO io = adios.DeclareIO("simulation");
    if (what == "write") write(io, argv[2]);
    if (what == "read") read(io, argv[2]);
    if (what == "span") put_span(io, argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
