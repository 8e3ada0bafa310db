/* MD5 (RFC 1321), which SDKs compare bodies by: of one text, and of four or eight at a time.
 *
 * Each step waits for the one before it, so that texts side by side take little longer than one.
 * The vectors are those of gcc and clang: four words on every processor, eight where it has them. */

#ifndef IMAGO_MD5_H
#define IMAGO_MD5_H

#include <stdint.h>
#include <string.h>

typedef uint32_t imago_four __attribute__((vector_size(16)));
typedef uint32_t imago_eight __attribute__((vector_size(32)));
#if defined(__x86_64__) && !defined(IMAGO_MD5_FOUR)
#define IMAGO_MD5_WIDE 1
#define IMAGO_AVX2 __attribute__((target("avx2")))
#define IMAGO_AVX512 __attribute__((target("avx2,avx512f,avx512vl")))
#endif

static const uint32_t imago_md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
static const uint32_t imago_md5_begin[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

static inline uint32_t imago_md5_word(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16
        | (uint32_t)from[3] << 24;
}

#define IMAGO_MD5_STEP(mixed, index, word, by) \
    do { \
        a += (mixed) + words[word] + imago_md5_sines[index]; \
        a = ((a << (by)) | (a >> (32 - (by)))) + b; \
    } while (0)
#define IMAGO_MD5_TURN(mixed, index, word) \
    do { \
        int by = bys[(index) >> 4][(index) & 3]; \
        IMAGO_MD5_STEP(mixed, index, word, by); \
        kept = d, d = c, c = b, b = a, a = kept; \
    } while (0)

/* All forms: V is a word, or some of them. */
#define IMAGO_MD5_BLOCK(name, V, target) \
    target static inline void name(V state[4], const V words[16]) \
    { \
        static const int bys[4][4] = { \
            {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}; \
        V a = state[0], b = state[1], c = state[2], d = state[3], kept; \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(d ^ (b & (c ^ d)), i, i); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(c ^ (d & (b ^ c)), 16 + i, (5 * i + 1) & 15); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(b ^ c ^ d, 32 + i, (3 * i + 5) & 15); \
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) \
            IMAGO_MD5_TURN(c ^ (b | ~d), 48 + i, (7 * i) & 15); \
        state[0] += a, state[1] += b, state[2] += c, state[3] += d; \
    }

IMAGO_MD5_BLOCK(imago_md5_one, uint32_t, )

/* Write how a text ends, `left` bytes of it and what MD5 adds; return of how many bytes. */
static size_t imago_md5_end(uint8_t last[128], const uint8_t *from, size_t left, size_t size)
{
    size_t whole = left < 56 ? 64 : 128;
    memset(last, 0, 128);
    memcpy(last, from, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++)
        last[whole - 8 + i] = (uint8_t)(((uint64_t)size << 3) >> (8 * i));
    return whole;
}

/* Take the blocks of a text from `at` on, and its end. */
static void imago_md5_rest(uint32_t state[4], const uint8_t *data, size_t size, size_t at)
{
    uint8_t last[128];
    uint32_t words[16];
    size_t whole;
    for (; size - at >= 64; at += 64) {
        for (int i = 0; i < 16; i++)
            words[i] = imago_md5_word(data + at + 4 * i);
        imago_md5_one(state, words);
    }
    whole = imago_md5_end(last, data + at, size - at, size);
    for (at = 0; at < whole; at += 64) {
        for (int i = 0; i < 16; i++)
            words[i] = imago_md5_word(last + at + 4 * i);
        imago_md5_one(state, words);
    }
}

static void imago_md5_write(const uint32_t state[4], uint8_t *to)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int i = 0; i < 16; i++) {
        uint8_t byte = (uint8_t)(state[i >> 2] >> (8 * (i & 3)));
        to[2 * i] = digits[byte >> 4], to[2 * i + 1] = digits[byte & 15];
    }
}

/* Write the digests of as many texts as V has words. Those of one size go side by side to the end,
 * others as far as the shortest. */
#define IMAGO_MD5_MANY(name, V, N, target) \
    IMAGO_MD5_BLOCK(name##_block, V, target) \
    target static inline void name##_at(V state[4], const uint8_t *const data[N], size_t at) \
    { \
        V words[16]; \
        for (int i = 0; i < 16; i++) \
            for (int j = 0; j < N; j++) \
                words[i][j] = imago_md5_word(data[j] + at + 4 * i); \
        name##_block(state, words); \
    } \
    target static void name( \
        const uint8_t *const data[N], const size_t sizes[N], uint8_t *const to[N]) \
    { \
        uint8_t last[N][128]; \
        const uint8_t *ends[N]; \
        V state[4]; \
        size_t at = 0, whole = 0, common = sizes[0], most = sizes[0]; \
        for (int i = 0; i < 4; i++) \
            state[i] = (V){0} + imago_md5_begin[i]; \
        for (int j = 1; j < N; j++) { \
            common = sizes[j] < common ? sizes[j] : common; \
            most = sizes[j] > most ? sizes[j] : most; \
        } \
        for (; common - at >= 64; at += 64) \
            name##_at(state, data, at); \
        if (common == most) { \
            for (int j = 0; j < N; j++) { \
                whole = imago_md5_end(last[j], data[j] + at, common - at, common); \
                ends[j] = last[j]; \
            } \
            for (size_t done = 0; done < whole; done += 64) \
                name##_at(state, ends, done); \
        } \
        for (int j = 0; j < N; j++) { \
            uint32_t own[4]; \
            for (int i = 0; i < 4; i++) \
                own[i] = state[i][j]; \
            if (common != most) \
                imago_md5_rest(own, data[j], sizes[j], at); \
            imago_md5_write(own, to[j]); \
        } \
    }

IMAGO_MD5_MANY(imago_md5_four, imago_four, 4, )
#ifdef IMAGO_MD5_WIDE
IMAGO_MD5_MANY(imago_md5_avx2, imago_eight, 8, IMAGO_AVX2)
IMAGO_MD5_MANY(imago_md5_avx512, imago_eight, 8, IMAGO_AVX512)
#endif

/* Write the digests of texts, as 32 hexadecimal digits each. */
static void imago_md5_digits(
    int count, const uint8_t *const *data, const size_t *sizes, uint8_t *const *to)
{
    int done = 0;
#ifdef IMAGO_MD5_WIDE
    if (__builtin_cpu_supports("avx512vl"))
        for (; count - done >= 8; done += 8)
            imago_md5_avx512(data + done, sizes + done, to + done);
    else if (__builtin_cpu_supports("avx2"))
        for (; count - done >= 8; done += 8)
            imago_md5_avx2(data + done, sizes + done, to + done);
#endif
    for (; count - done >= 4; done += 4)
        imago_md5_four(data + done, sizes + done, to + done);
    for (; done < count; done++) {
        uint32_t state[4];
        memcpy(state, imago_md5_begin, sizeof state);
        imago_md5_rest(state, data[done], sizes[done], 0);
        imago_md5_write(state, to[done]);
    }
}

#endif
