// What the threads of a kernel did, and what they must not do. The traced build alone has it.
//
// A word of memory keeps its last write and some reads. Two accesses are ordered if one thread made
// both, if a block barrier released its threads in between, or if __syncwarp() ordered the lanes (a
// vector clock a lane). A shuffle orders nothing, as in CUDA. Two accesses that are not ordered, of
// which one is a write and not both are atomic, are a race.
#pragma once

namespace cuda_on_cpu {

// The builder's Python (trace.py) reads these by the same names and order.
typedef unsigned long long Address;
enum Kind { RACE, UNWRITTEN, OUTSIDE, MISALIGNED, DIVERGED, MISSED, STRAY_LANE };
enum Logged { GLOBAL_READ, GLOBAL_WRITE, GLOBAL_ATOMIC, SHARED_READ, SHARED_WRITE, SHARED_ATOMIC,
              BARRIER };

// One access: by whom, when, and from which instruction (its offset in this library).
struct Event {
  unsigned interval;  // block barriers released before, over the launch; 0 is never
  unsigned clock;     // of its lane
  unsigned pc;
  unsigned short thread;
  unsigned short skipped;  // how often the thread had passed the barrier that is skipped
  unsigned char access, bytes, mask;  // mask: which bytes of the word
};
struct Word {
  Event write;
  Event read[3];  // two lanes of the latest warp, one thread of another
  unsigned block;         // what follows and write, read hold for this block alone
  unsigned char written;  // which bytes were
};
struct Report {
  long long address;
  unsigned kind, count, block;
  unsigned first_pc, second_pc;  // of DIVERGED and MISSED: the lines themselves
  unsigned short first_thread, second_thread, first_skipped, second_skipped;
  unsigned char first_access, second_access, first_bytes, second_bytes;
};
struct Record {  // of the logged block; of a BARRIER, address is its index and pc its line
  Address address;
  unsigned pc, interval;
  unsigned short thread;
  unsigned char kind, bytes;
};
struct Slot {
  Address key;
  Word word;
};

enum { MAX_REPORTS = 64, MAX_RECORDS = 1 << 23 };
static Report reports[MAX_REPORTS];
static Record* records;
static int report_count, record_count, record_room, record_lost;
static const Address *arrays, *variables, *guards;  // first and one past last, in turn
static int array_count, shared_count, guard_count;
static long long logged_block;
static unsigned interval;   // grows over all launches, as block_stamp does
static unsigned block_stamp, block_number;
static unsigned clocks[MAX_THREADS][LANES];
static unsigned short times_skipped[MAX_THREADS];
static bool returned[MAX_THREADS];
static unsigned lane_pc[MAX_THREADS];  // of the latest shuffle
static Word* shared_words;  // the static segment's, then the dynamic one's
static Slot* slots;  // global memory: a hash table of the words that this block touched
static size_t shared_room, slot_room, slot_count;
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];

CUDA_QUIET static void log_event(Logged kind, Address address, unsigned pc, int bytes) {
  if (block_number != logged_block) return;
  if (record_count == record_room) {
    if (record_room == MAX_RECORDS) return void(++record_lost);
    record_room = record_room ? 2 * record_room : 1 << 14;
    records = (Record*)__builtin_realloc(records, record_room * sizeof(Record));
  }
  records[record_count++] = {address, pc, interval, (unsigned short)current, (unsigned char)kind,
                             (unsigned char)bytes};
}

CUDA_QUIET static void report(Kind kind, Address address, const Event& a, const Event& b) {
  for (int i = 0; i < report_count; ++i) {
    Report& old = reports[i];
    if (old.kind == kind && old.first_pc == a.pc && old.second_pc == b.pc) return void(++old.count);
  }
  if (report_count == MAX_REPORTS) return;
  reports[report_count++] = {(long long)address, kind, 1, block_number, a.pc, b.pc, a.thread,
                             b.thread, a.skipped, b.skipped, a.access, b.access, a.bytes, b.bytes};
}

CUDA_QUIET static bool ordered(const Event& before, const Event& now) {
  if (before.interval != now.interval || before.thread == now.thread) return true;
  if (before.thread / LANES != now.thread / LANES) return false;
  return before.clock <= clocks[now.thread][before.thread % LANES];
}

CUDA_QUIET static bool races(const Event& before, const Event& now) {
  return (before.mask & now.mask) && !(before.access == ATOMIC && now.access == ATOMIC) &&
         !ordered(before, now);
}

CUDA_QUIET static void remember_read(Word& word, const Event& now) {
  Event* read = word.read;
  for (int i = 0; i < 3; ++i)
    if (read[i].interval != now.interval || read[i].thread == now.thread)
      return void(read[i] = now);
  if (read[0].thread / LANES != now.thread / LANES) read[2] = read[0];
  read[0] = read[1];
  read[1] = now;
}

// The word's record, checked against this access. True where a race was reported.
CUDA_QUIET static bool check(Word& word, const Event& now, Address address) {
  bool raced = races(word.write, now);
  if (raced) report(RACE, address, word.write, now);
  for (int i = 0; i < 3 && !raced && now.access != READ; ++i)
    if ((raced = races(word.read[i], now))) report(RACE, address, word.read[i], now);
  if (now.access == READ) {
    remember_read(word, now);
  } else {
    bool widens = word.write.interval == now.interval && word.write.thread == now.thread;
    unsigned char mask = widens ? word.write.mask | now.mask : now.mask;
    word.write = now;
    word.write.mask = mask;
  }
  return raced;
}

// This block's record of the word at `at`, which is in global memory.
CUDA_QUIET static Word& global_word(Address at) {
  if (2 * slot_count >= slot_room) {
    Slot* old = slots;
    size_t old_room = slot_room;
    slot_room = slot_room ? 2 * slot_room : 1 << 12, slot_count = 0;
    slots = (Slot*)__builtin_calloc(slot_room, sizeof(Slot));
    for (size_t i = 0; i < old_room; ++i)
      if (old[i].word.block == block_stamp) global_word(old[i].key) = old[i].word;
    __builtin_free(old);
  }
  for (size_t i = at * 0x9e3779b97f4a7c15ull >> 20;; ++i) {
    Slot& slot = slots[i & (slot_room - 1)];
    if (slot.word.block == block_stamp && slot.key == at) return slot.word;
    if (slot.word.block == block_stamp) continue;
    ++slot_count;
    slot.key = at, slot.word.block = block_stamp;
    return slot.word;
  }
}

// The same for shared memory: the words of the static segment, then the dynamic ones.
CUDA_QUIET static Word& shared_word(Address at) {
  Address first = (Address)shared_first & -4ull;
  bool in_segment = at - first < shared_last - (unsigned char*)first;
  size_t words = (shared_last - shared_first) / 4 + 2;
  Word& word = shared_words[in_segment ? (at - first) / 4
                                       : words + (at - (Address)dynamic_shared) / 4];
  if (word.block != block_stamp) word.block = block_stamp, word.written = 0;
  return word;
}

CUDA_QUIET static unsigned offset_of(const void* from) {
  return (unsigned)((const char*)from - __ehdr_start) - 1;  // a return address: still in its line
}

CUDA_QUIET static bool in_one(const Address* ranges, int count, Address address, int bytes) {
  for (const Address* range = ranges; range < ranges + 2 * count; range += 2)
    if (address - range[0] < range[1] - range[0] && address + bytes <= range[1]) return true;
  return false;
}

CUDA_QUIET static void trace_access(const volatile void* pointer, int bytes, Access access,
                                    const void* from) {
  Address address = (Address)pointer, end = address + bytes;
  if (!in_block || address - (Address)stacks < stack_bytes) return;
  Address dynamic = (Address)dynamic_shared, in_segment = address - (Address)shared_first;
  if (in_one(guards, guard_count, in_segment, bytes)) return;
  bool shared = in_one(variables, shared_count, in_segment, bytes) ||
                (address >= dynamic && end <= dynamic + dynamic_bytes);
  bool inside = shared || in_one(arrays, array_count, address, bytes);
  // The emulator's own state, constants and __device__ variables are nobody's business.
  bool own = pointer >= __ehdr_start && pointer < _end;
  if (!inside && own && address - (Address)dynamic_room >= sizeof dynamic_room) return;
  unsigned clock = ++clocks[current][current % LANES];
  Event now = {interval, clock, offset_of(from), (unsigned short)current, times_skipped[current],
               (unsigned char)access, (unsigned char)bytes, 0xf};
  if (!inside) {
    report(OUTSIDE, address, now, now);
    fail(STOPPED, 0);  // the access itself is never made
  }
  log_event((Logged)((shared ? SHARED_READ : GLOBAL_READ) + access), address, now.pc, bytes);
  if (address % bytes) report(MISALIGNED, address, now, now);
  bool reported = false;
  for (Address at = address & -4ull; at < end && !reported; at += 4) {
    now.mask = 0xf;
    if (at < address) now.mask &= 0xf << (address - at);
    if (at + 4 > end) now.mask &= 0xf >> (at + 4 - end);
    Word& word = shared ? shared_word(at) : global_word(at);
    reported = check(word, now, at);
    if (shared && access != WRITE && (now.mask & ~word.written))
      report(UNWRITTEN, at, now, now), reported = true;
    if (access != READ) word.written |= now.mask;
  }
}

// A struct of 8 or 16 bytes moves at once, any other word by word.
CUDA_QUIET static void trace_copy(void* to, const void* from, int bytes, const void* pc) {
  int step = bytes == 8 || bytes == 16 ? bytes : bytes % 4 ? 1 : 4;
  for (int i = 0; i < bytes; i += step) {
    trace_access((const char*)from + i, step, READ, pc);
    trace_access((char*)to + i, step, WRITE, pc);
  }
}

CUDA_QUIET static void trace_barrier(int site, int line) {
  log_event(BARRIER, site, line, 0);
  if (site == skipped_site) ++times_skipped[current];
}

// A barrier lets its threads go: were all of them here, and at the same line?
CUDA_QUIET static void trace_release(int line) {
  Event at = {0, 0, (unsigned)line, at_barrier[waiting - 1]}, other = at;
  for (int i = 0; i < waiting; ++i) {
    int elsewhere = barrier_line[at_barrier[i]];
    if (elsewhere == line) continue;
    other.pc = elsewhere, other.thread = at_barrier[i];
    report(DIVERGED, 0, other, at);
    break;
  }
  for (int t = 0; t < (int)(block_size.x * block_size.y * block_size.z); ++t)
    if (returned[t]) {
      other.pc = 0, other.thread = t;
      report(MISSED, 0, at, other);
      break;
    }
  ++interval;
}

CUDA_QUIET static void trace_returned() { returned[current] = true; }

CUDA_QUIET static void trace_lane(const void* from) { lane_pc[current] = offset_of(from); }

// The lanes of `mask` have met, in __syncwarp() or, ordering nothing, in a shuffle.
CUDA_QUIET static void trace_warp(unsigned mask, bool orders) {
  unsigned joined[LANES] = {};
  int base = current & -LANES;
  for (int lane = 0; lane < LANES; ++lane) {
    if (!(mask >> lane & 1)) continue;
    int source = warps[base / LANES].source[lane];
    if (!(mask >> source & 1)) {
      Event reader = {0, 0, lane_pc[base + lane], (unsigned short)(base + lane)}, other = reader;
      other.thread = base + source;
      report(STRAY_LANE, 0, reader, other);
    }
    for (int i = 0; i < LANES; ++i)
      if (clocks[base + lane][i] > joined[i]) joined[i] = clocks[base + lane][i];
  }
  for (int lane = 0; lane < LANES && orders; ++lane)
    if (mask >> lane & 1) {
      __builtin_memcpy(clocks[base + lane], joined, sizeof joined);
      ++clocks[base + lane][lane];
    }
}

CUDA_QUIET static void trace_block(long long number) {
  size_t words = (shared_last - shared_first + dynamic_bytes) / 4 + 4;
  if (shared_room < words) {
    __builtin_free(shared_words);
    shared_words = (Word*)__builtin_calloc(words, sizeof(Word)), shared_room = words;
  }
  block_number = (unsigned)number;
  ++block_stamp, ++interval, slot_count = 0;
  __builtin_memset(clocks, 0, sizeof clocks);
  __builtin_memset(times_skipped, 0, sizeof times_skipped);
  __builtin_memset(returned, 0, sizeof returned);
}

}  // namespace cuda_on_cpu

#include "tsan_hooks.h"

extern "C" {
// Forgets what was reported and logged. What the next launch may touch, [0] arrays, [1] shared
// variables and [2] their guards (both from the segment's start), must live until it ends.
CUDA_VISIBLE void cuda_trace_begin(const unsigned long long** ranges, const int* counts,
                                   long long block) {
  using namespace cuda_on_cpu;
  report_count = record_count = record_lost = 0;
  arrays = ranges[0], variables = ranges[1], guards = ranges[2];
  array_count = counts[0], shared_count = counts[1], guard_count = counts[2];
  logged_block = block;
}

// counts: reports, records, records lost; bases: of static and dynamic shared memory.
CUDA_VISIBLE void cuda_trace_end(long long* counts, unsigned long long* bases, void** tables) {
  using namespace cuda_on_cpu;
  counts[0] = report_count, counts[1] = record_count, counts[2] = record_lost;
  bases[0] = (unsigned long long)shared_first, bases[1] = (unsigned long long)dynamic_shared;
  bases[2] = shared_last - shared_first;
  tables[0] = reports, tables[1] = records;
  array_count = shared_count = guard_count = 0;  // the ranges are the caller's again
}
}
