/* Whether the processor can run a model's kernels, and for which of the targets that they were compiled for: this text
 * becomes part of each model's C++ source, after HALIDE_BACKEND_TARGETS, a list of `Target`. Nothing that a processor
 * may lack is executed here. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

#if !defined(HALIDE_BACKEND_ARCHITECTURE)
#error "the kernels of this model are for another architecture than this compiler's"
#endif

namespace halide_backend_processor {

/* What code needs: bit `bit` of register `word` (EAX, EBX, ECX, EDX) that CPUID shows for `leaf` and `subleaf`; and of
 * the operating system that it saves the registers of XCR0's bits `saved`. On other architectures bit `bit` of entry
 * `leaf` of the auxiliary vector. */
struct Feature {
  const char* name;
  uint32_t leaf, subleaf, word, bit, saved;
};

/* `features` end with one without a name; targets, from the least to the most that they need, with one without a name. */
struct Target {
  const char* name;
  Feature features[64];
};

static const Target targets[] = {HALIDE_BACKEND_TARGETS, {}};

#if defined(__x86_64__)
static uint32_t saved_registers() {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
  /* Volatile: else the compiler may execute it before the test. */
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

static bool has(const Feature& feature) {
  uint32_t words[4];
  return __get_cpuid_count(feature.leaf, feature.subleaf, &words[0], &words[1], &words[2], &words[3]) &&
         words[feature.word] >> feature.bit & 1 && (saved_registers() & feature.saved) == feature.saved;
}
#else
static bool has(const Feature& feature) { return getauxval(feature.leaf) >> feature.bit & 1; }
#endif

struct Choice {
  int32_t target = -1;
  char unsuitable[512] = "";
};

/* Whether all features of `target` are there; `missing` is what is not, by name. */
static bool runs(const Target& target, char* missing, size_t size) {
  missing[0] = '\0';
  for (const Feature* feature = target.features; feature->name; feature++) {
    if (has(*feature)) continue;
    size_t used = strlen(missing);
    snprintf(missing + used, size - used, "%s%s", used ? ", " : "", feature->name);
  }
  return !missing[0];
}

static Choice choose() {
  Choice choice;
  char missing[384] = "";
  const char* wanted = getenv("HALIDE_BACKEND_MODEL_TARGET");
  bool is_wanted = wanted && wanted[0] && targets[1].name;
  for (int number = 0; targets[number].name; number++) {
    if (is_wanted && strcmp(targets[number].name, wanted) != 0) continue;
    if (!runs(targets[number], missing, sizeof missing)) break;
    choice.target = number;
  }
  if (choice.target >= 0) return choice;
  if (missing[0]) {
    snprintf(choice.unsuitable, sizeof choice.unsuitable,
             "halide_backend: this processor cannot run the kernels of this model; it lacks %s", missing);
  } else {
    snprintf(choice.unsuitable, sizeof choice.unsuitable,
             "halide_backend: HALIDE_BACKEND_MODEL_TARGET is '%.100s', for which this model has no kernels", wanted);
  }
  return choice;
}

static const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace halide_backend_processor

extern "C" {
#pragma GCC visibility push(hidden)

/* Which of a kernel's functions this processor runs, counted from 0; -1: none. */
int32_t halide_backend_target() { return halide_backend_processor::chosen().target; }

/* Why this processor runs none; NULL if it does. */
const char* halide_backend_unsuitable() {
  const halide_backend_processor::Choice& choice = halide_backend_processor::chosen();
  return choice.target < 0 ? choice.unsuitable : nullptr;
}

#pragma GCC visibility pop
}
