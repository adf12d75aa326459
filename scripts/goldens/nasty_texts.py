"""Difficult texts that distinguish tokenizers. All written for this purpose."""

SPACES = [
    "", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", " a", "a ", "  a", "a  ", "   a   b    c     d", "a\tb", "a\t\tb\t", "\ta",
    "a\nb", "a\n\nb", "a\n\n\nb", "a \n b", "a\n  b\n    c", "a\r\nb\r\n", "a\rb", "\n\n\n\n", " \t \n \t ", "x" + " " * 40 + "y",
    "line one  \nline two\t\n\n\tline three", "trailing spaces     ", "a\u00a0b", "a\u2003b\u2009c", "\u3000全角\u3000空白", "a\u000bb\u000cc", "a\u0085b\u2028c\u2029d",
]  # fmt: skip
LETTERS = [
    "Hello", "hello world", "Hello, World!", "HELLO WORLD", "hElLo WoRlD", "CamelCaseIdentifierWithWords", "snake_case_identifier", "the quick brown fox",
    "naïve café résumé", "e\u0301 a\u0308 n\u0303 cafe\u0301", "é ä ñ café", "\u00c5 \u212b A\u030a", "ﬁ ﬂ ﬃ ligatures", "Straße ẞ ß", "İstanbul ıI", "\u03a9 \u2126",
    "Ελληνικά γράμματα", "Русский текст, ещё раз", "Українська ґ", "中文测试，没有空格。", "日本語のテキスト カタカナ", "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "ไทยไม่มีช่องว่าง", "नमस्ते दुनिया", "العربية من اليمين", "שלום עולם", "עִבְרִית", "mixed 中文 and English混合",
    "a\u200bb\u200cc\u200dd\ufeffe", "\u202eright to left\u202c", "\u200f\u200e marks", "Z͑ͫ̓a̴l̶g̷o̸", "\u0301alone", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒎𝒂𝒕𝒉", "𐍈𐌰 Gothic", "ǅ ǈ titlecase", "ʻokina ’quote’",
]  # fmt: skip
DIGITS = [
    "0", "7", "12", "123", "1234", "12345", "123456", "1234567", "12345678901234567890", "3.14159", "1,000,000.00", "-5 +5 ±5", "1e-10", "0x1F",
    "2024-02-29", "12:34:56", "v1.2.3", "a1b2c3", "1 2 3", "1  2", "  42", "½ ² ³ ①", "٠١٢٣", "१२३", "Ⅷ", "１２３", "50%", "$5.00 €5 £5", "#1", "2x4", "3rd 4th",
]  # fmt: skip
PUNCTUATION = [
    "I'm you're he's we'll they've I'd can't", "I'M YOU'RE HE'S WE'LL THEY'VE I'D CAN'T", "'tis 'twas o'clock rock'n'roll", "it’s don’t", "'s", " 's", "''s", "'S 'T 'RE",
    "...", "....", "!!!", "?!?!", "--", "---", "—–-", "***bold***", "(a)[b]{c}<d>", "\"quoted\" 'single' `tick`", "a.b,c;d:e", "a . b", "«guillemets» „quotes“",
    "https://example.org/path?query=1&b=two#part", "name@example.org", "C:\\path\\file.txt", "/usr/local/bin", "a/b\\c|d", "~!@#$%^&*()_+", "=== !== <= >= -> => ::",
    "\\n \\t \\u0041", "\\xff\\xfe", "Ã© â€™ mojibake", "\ufffd\ufffd", "%20%E2%82%AC", "&amp; &#39; &lt;b&gt;", "<0x41><0x0A>", "▁under▁score", "Ġbyte Ċlevel", "_", "__init__",
]  # fmt: skip
CODE = [
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}\n", "let v: Vec<u8> = vec![0; 16];", "SELECT * FROM t WHERE a='b';",
    "{\"key\": [1, 2.5, null, true]}", "<p class=\"x\">text</p>", "    indented\n        more\n", "x = y  # comment", "if(a&&b||!c){}", "$ cargo test --all", "a,b\n1,2\n3,4\n",
]  # fmt: skip
SYMBOLS = [
    "🙂", "🙂🙂🙂", "a🙂b", " 🙂 ", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☃ ★ ♠", "→ ⇒ ∀x∈ℝ", "∑∫√∞", "™ © ®", "🧑🏿‍🚀 in space", "\U0001f9ff\U0010ffff", "a\u0001b\u0007c\u001bd\u007fe",
    "\u0000", "a\u0000b",
]  # fmt: skip
LONG = [
    "a" * 300, "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen", "ab" * 100, "=" * 80, "-" * 33, "word " * 60, "…" * 10, "12" * 50, "\n" * 20, "中" * 40, "pneumono" * 20,
]  # fmt: skip
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "a<|im_end|>b", "a <|im_end|> b", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "<|endoftext|><|endoftext|>", "<s>", "</s>",
    "a</s>b", "<s> a </s>", "<unk>", "<pad>", "[INST] hi [/INST]", "[INST]hi[/INST]", "<s>[INST] hi [/INST]</s>", "<|eot_id|>", "<|begin_of_text|>text<|end_of_text|>",
    "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<|im_end", "<|im_end|", "<|IM_END|>", "< |im_end|>", "<|im_<|im_end|>end|>", "<tool_call>", "<tool_call>\n{}\n</tool_call>",
    "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<repo_name>x<file_sep>", "<judge>", "a<judge>b", " <judge> ", "::a::b", "<|turn|>", "a<|turn|>b", "[control_8]", "[TOOL_CALLS][]",
]  # fmt: skip

TEXTS = SPACES + LETTERS + DIGITS + PUNCTUATION + CODE + SYMBOLS + LONG + SPECIAL
assert len(TEXTS) == len(set(TEXTS)), [t for t in TEXTS if TEXTS.count(t) > 1]
