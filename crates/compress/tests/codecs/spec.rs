//! Texts of codecs.

use girih_compress::CodecSpec;

#[test]
fn text_and_spec_are_the_same() {
    for text in ["topk:8", "topk-residual:128", "f16", "bf16", "int8", "int4", "pca:32", "pq:48", "auto:48"] {
        assert_eq!(text.parse::<CodecSpec>().unwrap().to_string(), text);
    }
}

#[test]
fn half_is_f16() {
    assert_eq!("half".parse::<CodecSpec>().unwrap(), CodecSpec::F16);
}

#[test]
fn unknown_codecs_are_refused_with_a_list_of_codecs() {
    for text in ["", "topk", "topk:", "topk:-1", "topk:8x", "f16:2", "zip", "pca", "auto", "topk:4294967296"] {
        let error = text.parse::<CodecSpec>().unwrap_err().to_string();
        assert!(error.contains("topk:8"), "{text}: {error}");
    }
    for text in ["topk:0", "topk:129", "topk-residual:0", "pca:0", "pq:0", "auto:0"] {
        let error = text.parse::<CodecSpec>().unwrap_err().to_string();
        assert!(error.contains("1 to"), "{text}: {error}");
    }
}
