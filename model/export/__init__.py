"""Export of trained models to CTranslate2, Hugging Face Transformers and MLflow."""
